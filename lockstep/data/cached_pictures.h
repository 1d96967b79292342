#pragma once

// Decoded pictures kept in memory, so that from the second epoch on no file is read.

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/data/picture_set.h"

namespace lockstep::data {

struct CacheStatistics {
  std::int64_t hits = 0;      ///< calls of get() that found the picture
  std::int64_t misses = 0;    ///< those that asked the set behind
  std::int64_t pictures = 0;  ///< kept
  std::size_t bytes = 0;      ///< of pixels, kept
};

/// A set that keeps what the set behind it gave, pixels as they were decoded, up to a limit. When that is
/// reached it keeps what it has and drops nothing: an epoch asks for each sample once, in a new order, so what
/// was used last is not what comes next. With room for half of the set half of the samples are found; if the
/// least recently used made room for others, 15 % would be.
///
/// Pictures are handed out without copying their pixels, and may outlive the cache (but not the set behind, if
/// that one only lends its pixels; they cost nothing here). What is wrong with a sample is thrown by each
/// get(), as by the set behind, and not kept. Each process has a cache of its own.
class CachedPictures : public PictureSet {
 public:
  /// `limit_bytes` of pixels; a set of N pictures needs N * height * width * channels.
  CachedPictures(std::shared_ptr<const PictureSet> set, std::size_t limit_bytes);
  CachedPictures(const CachedPictures&) = delete;
  CachedPictures& operator=(const CachedPictures&) = delete;
  ~CachedPictures() override;

  std::int64_t size() const override { return set_->size(); }
  Sample get(std::int64_t index) const override;
  std::string file_of(std::int64_t index) const override { return set_->file_of(index); }
  const std::vector<std::string>& classes() const override { return set_->classes(); }
  SetFingerprint fingerprint() const override { return set_->fingerprint(); }

  /// Any thread may ask; counts of calls that are under way may be missing.
  CacheStatistics statistics() const;

 private:
  // Threads that count calls must not wait for each other's cache line.
  struct alignas(64) Calls {
    std::atomic<std::int64_t> hits{0};
    std::atomic<std::int64_t> misses{0};
  };
  static constexpr std::size_t kCounters = 16;

  void keep(std::int64_t index, const Sample& sample) const;
  bool reserve(std::size_t bytes) const;

  std::shared_ptr<const PictureSet> set_;
  std::size_t limit_bytes_;
  mutable std::vector<std::atomic<const Sample*>> kept_;  // by index; written once, owned
  mutable std::vector<Calls> calls_;                      // by index modulo their number
  mutable std::atomic<std::size_t> bytes_{0};
  mutable std::atomic<std::int64_t> pictures_{0};
};

}  // namespace lockstep::data
