#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::memory {

/// What one thread did. Written by that thread alone (or under a lock), read by any.
class Counters {
 public:
  void handed_out(std::size_t bytes, bool was_kept) {
    add(in_use_, std::int64_t(bytes));
    add(was_kept ? hits_ : misses_, std::uint64_t{1});
  }
  void taken_back(std::size_t bytes) { add(in_use_, -std::int64_t(bytes)); }
  void keep(std::int64_t bytes) { add(kept_, bytes); }

  void add(const Counters& other) {
    add(in_use_, other.in_use());
    add(kept_, other.kept());
    add(hits_, other.hits());
    add(misses_, other.misses());
  }

  std::int64_t in_use() const {
    return in_use_.load(std::memory_order_relaxed);
  }                                                                            ///< bytes; negative where others free
  std::int64_t kept() const { return kept_.load(std::memory_order_relaxed); }  ///< bytes
  std::uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  std::uint64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 private:
  // With one writer no locked instruction is needed.
  template <typename Number>
  static void add(std::atomic<Number>& counter, Number value) {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  std::atomic<std::int64_t> in_use_ = 0;
  std::atomic<std::int64_t> kept_ = 0;
  std::atomic<std::uint64_t> hits_ = 0;
  std::atomic<std::uint64_t> misses_ = 0;
};

}  // namespace lockstep::memory
