#pragma once

// The order of Python's torch.utils.data.DistributedSampler, index for index.

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/samplers/deal.h"
#include "lockstep/data/samplers/sampler.h"
#include "lockstep/data/samplers/state.h"

namespace lockstep::data {

struct DistributedSamplerOptions {
  bool shuffle = true;     ///< a new order each epoch; false: 0, 1, 2, …
  std::uint64_t seed = 0;  ///< equal on all ranks
  bool drop_last = false;  ///< uneven sets: leave samples out, instead of repeating the first ones
};

/// Which samples rank `rank` of `num_replicas` sees in an epoch: every num_replicas-th entry,
/// from entry `rank` on, of the order torch.randperm gives for the generator seed + epoch.
/// All ranks get equally many. Not thread-safe.
class DistributedSampler {
 public:
  /// `size`: samples in the set. UsageError when rank is not in 0 … num_replicas−1.
  DistributedSampler(std::int64_t size, int num_replicas, int rank, DistributedSamplerOptions options = {});

  /// Deals out the order of any sampler, a WeightedRandomSampler for instance.
  DistributedSampler(std::shared_ptr<const Sampler> sampler, int num_replicas, int rank, bool drop_last = false);

  /// Call before each epoch, with the epoch counted from 0: without it all epochs have one order. The epoch of
  /// a restored state goes on where it stood.
  void set_epoch(std::uint64_t epoch);

  /// Samples per rank and epoch; after restore(), those that are left.
  std::int64_t num_samples() const { return share_size(sampler_->num_samples(), share_); }

  /// This rank's samples of the epoch, num_samples() of them.
  std::vector<std::int64_t> indices() const;

  /// Where the run stands when each rank has taken the first `taken` of its indices(): the same on all ranks
  /// when `taken` is. After all of them that is the beginning of the next epoch. UsageError when there are not
  /// as many.
  SamplerState state(std::int64_t taken) const;

  /// Goes on from there, with any number of ranks: what is left of the order is dealt out from its front, and
  /// padded or cut as an epoch is. UsageError when the state is not of this order.
  void restore(const SamplerState& state);

 private:
  std::shared_ptr<const Sampler> sampler_;
  Share share_;
  std::uint64_t epoch_ = 0;
};

}  // namespace lockstep::data
