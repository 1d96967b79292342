#pragma once

// Which samples a rank reads at each step: the orders of its shards, one behind the other.

#include <cstdint>
#include <memory>

#include "lockstep/data/loader.h"
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/train/batch_plan.h"

namespace lockstep::train {

/// Where step `step` (from 1) stands in the run.
struct StepPlace {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t batch = 0;  ///< within the epoch, from 0
  bool ends_epoch = false;
};
StepPlace place_of_step(std::int64_t step, std::int64_t steps_per_epoch);

/// A source for data::Loader: number k gives the batch of step k for the shards of `span`,
/// shard after shard. The order within a shard is that of Python's DistributedSampler with as
/// many replicas as shards, so it does not depend on who computes it. Thread-safe.
data::BatchSource shard_source(std::shared_ptr<const data::Batches> set, BatchPlan plan, parallel::ShardSpan span,
                               std::uint64_t seed);

/// How training batches are mixed.
struct Mixing {
  std::shared_ptr<const data::BatchMix> mix;
  std::int64_t classes = 0;
  std::uint64_t seed = 0;
};

/// The batches of a shard_source() for `span`, every shard mixed within itself: who computes it does not show.
data::BatchSource mixed_source(data::BatchSource source, Mixing mixing, parallel::ShardSpan span,
                               std::int64_t steps_per_epoch);

}  // namespace lockstep::train
