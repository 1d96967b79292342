#pragma once

// The order of Python's torch.utils.data.DistributedSampler, index for index.

#include <cstdint>
#include <vector>

namespace lockstep::data {

struct DistributedSamplerOptions {
  bool shuffle = true;     ///< a new order each epoch; false: 0, 1, 2, …
  std::uint64_t seed = 0;  ///< equal on all ranks
  bool drop_last = false;  ///< uneven sets: leave samples out, instead of repeating the first ones
};

/// Which samples rank `rank` of `num_replicas` sees in an epoch: every num_replicas-th entry,
/// from entry `rank` on, of the order torch.randperm gives for the generator seed + epoch.
/// All ranks get equally many. Pure function of the options and the epoch; not thread-safe.
class DistributedSampler {
 public:
  /// `size`: samples in the set. UsageError when rank is not in 0 … num_replicas−1.
  DistributedSampler(std::int64_t size, int num_replicas, int rank, DistributedSamplerOptions options = {});

  /// Call before each epoch, with the epoch counted from 0: without it all epochs have one order.
  void set_epoch(std::uint64_t epoch) { epoch_ = epoch; }

  /// Samples per rank and epoch.
  std::int64_t num_samples() const { return num_samples_; }

  /// This rank's samples of the epoch, num_samples() of them.
  std::vector<std::int64_t> indices() const;

 private:
  std::vector<std::int64_t> order() const;

  std::int64_t size_;
  int num_replicas_;
  int rank_;
  DistributedSamplerOptions options_;
  std::uint64_t epoch_ = 0;
  std::int64_t num_samples_;
};

}  // namespace lockstep::data
