#pragma once

// The batches that a rank trains on, one after the other.

#include <cstdint>

#include "lockstep/data/loader.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/train/input.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// How the options want batches read.
data::LoaderOptions loader_options(const Options& options);

/// The batches of steps run.first_step to run.total_steps for the shards of `span`, made ahead by threads.
class TrainBatches {
 public:
  TrainBatches(const Options& options, const Input& input, const RunSize& run, parallel::ShardSpan span);

  /// Of the next step; there must be one. Throws as data::Loader::next().
  data::Batch next() { return *loader_.next(); }

  /// What the threads have done since the last call.
  InputWork work_done();

 private:
  data::Loader loader_;
  InputWork told_;  ///< by earlier calls
};

}  // namespace lockstep::train
