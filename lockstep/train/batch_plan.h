#pragma once

// How a run divides its work: samples into steps, steps into shards, shards among ranks.
// Pure functions of the options, the world and the data set; all ranks get the same.

#include <cstdint>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// How many samples one step takes and into how many equal shards they are cut.
struct BatchPlan {
  std::int64_t global_batch = 0;  ///< samples per step (G); the last step of an epoch may have fewer
  int shards = 0;                 ///< logical shards (S)
  std::int64_t shard_batch = 0;   ///< samples per shard and step, G / S

  bool operator==(const BatchPlan&) const = default;
};

/// The plan for `world_size` ranks and a training set of `dataset_size` samples (not looked
/// at when the run reads no data). Throws UsageError when the batch flags contradict each
/// other, world > S, S does not divide G, there are several ranks for --parallel dp, or G is more than the set has.
BatchPlan plan_batch(const Options& options, int world_size, std::int64_t dataset_size);

/// The options with what they have left open filled in, for the record of a run on `world_size` ranks: processes,
/// shards and the whole batch, in whose place they give none per process. They repeat the run by themselves.
Options planned(Options options, const BatchPlan& plan, int world_size);

/// False when the run ends before its first step (--max-steps 0, --epochs 0, --test-only): no set to
/// train on is needed then.
bool reads_data(const Options& options);

/// Whether the signals of --stop-on end the run in good order: it trains, and has somewhere to save.
bool heeds_signals(const Options& options);

/// Steps that one pass over `dataset_size` samples takes: the size of a data::DataLoader for this plan.
std::int64_t steps_per_epoch(const BatchPlan& plan, std::int64_t dataset_size);

/// Where step `step` (from 1) stands in the run.
struct StepPlace {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t batch = 0;  ///< within the epoch, from 0
  bool ends_epoch = false;
};
StepPlace place_of_step(std::int64_t step, std::int64_t steps_per_epoch);

/// Steps of the whole run: --max-steps alone crosses epochs, with --epochs the first
/// reached ends the run, neither means one epoch. `ahead`: as RunSize's.
std::int64_t steps_in_run(const Options& options, std::int64_t steps_per_epoch, std::int64_t ahead = 0);

}  // namespace lockstep::train
