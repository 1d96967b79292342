#pragma once

// What a sampler is: which samples an epoch reads, in which order.

#include <cstdint>
#include <numeric>
#include <vector>

namespace lockstep::data {

/// Derive from it to make one of your own. The order is a pure function of the epoch, the same on all ranks;
/// so a position in it is all that a checkpoint needs (state.h). Thread-safe.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Entries per epoch.
  virtual std::int64_t num_samples() const = 0;

  /// The samples of the epoch, num_samples() of them; epochs count from 0.
  virtual std::vector<std::int64_t> order(std::uint64_t epoch) const = 0;
};

/// 0, 1, 2, ... in every epoch.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t size) : size_(size) {}

  std::int64_t num_samples() const override { return size_; }
  std::vector<std::int64_t> order(std::uint64_t) const override {
    std::vector<std::int64_t> order(static_cast<std::size_t>(size_));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

 private:
  std::int64_t size_;
};

}  // namespace lockstep::data
