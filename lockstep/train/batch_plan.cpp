#include "lockstep/train/batch_plan.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/part.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kDefaultBatchSize = 100;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

std::string number(std::int64_t value) { return std::to_string(value); }

std::string times(std::int64_t factor, const std::string& what) {
  return factor > 1 ? " x " + number(factor) + " " + what : "";
}

std::int64_t global_batch(const Options& options, int world_size) {
  const std::int64_t product =
      options.batch_size.value_or(kDefaultBatchSize) * world_size * std::int64_t(options.grad_accum_steps);
  if (!options.global_batch_size) return product;
  if (options.batch_size && *options.global_batch_size != product)
    throw UsageError("--batch-size " + number(*options.batch_size) + " x " + number(world_size) + " processes" +
                     times(options.grad_accum_steps, "--grad-accum-steps") + " is " + number(product) +
                     ", but --global-batch-size is " + number(*options.global_batch_size) +
                     ": give one of the two, or numbers that agree");
  return *options.global_batch_size;
}

/// The divisor of `whole` nearest to `wanted`, of those that serve `world_size` ranks; 0: none.
int nearest_divisor(std::int64_t whole, int wanted, int world_size) {
  int best = 0;
  const std::int64_t most = std::min<std::int64_t>(whole, 2 * std::int64_t(wanted));
  for (std::int64_t d = world_size; d <= most; ++d)
    if (whole % d == 0 && (best == 0 || std::abs(d - wanted) < std::abs(best - wanted))) best = static_cast<int>(d);
  return best;
}

void check_shards(std::int64_t global_batch, int shards, int world_size) {
  if (world_size > shards)
    throw UsageError("--logical-shards " + number(shards) + " is less than the " + number(world_size) +
                     " processes: each needs a shard, so " + number(world_size) + " or more");
  if (global_batch % shards == 0) return;
  const int divisor = nearest_divisor(global_batch, shards, world_size);
  throw UsageError("the global batch of " + number(global_batch) + " samples does not divide into " + number(shards) +
                   " shards: " + (divisor > 0 ? "--logical-shards " + number(divisor) + " would, or " : std::string()) +
                   "--global-batch-size " + number(ceil_divide(global_batch, shards) * shards));
}

}  // namespace

BatchPlan plan_batch(const Options& options, int world_size, std::int64_t dataset_size) {
  if (world_size < 1) throw UsageError("a world of " + number(world_size) + " processes: at least 1 is needed");
  if (is_replicated(options) && world_size > 1)
    throw UsageError("--parallel dp is one process with --replicas " + number(options.replicas.value_or(1)) +
                     ", but there are " + number(world_size) + " processes: start one, or --parallel ddp");
  BatchPlan plan;
  plan.global_batch = global_batch(options, world_size);
  plan.shards = options.logical_shards.value_or(world_size * options.grad_accum_steps);
  check_shards(plan.global_batch, plan.shards, world_size);
  if (options.sync_bn && plan.shards != world_size)
    throw UsageError("--sync-bn needs one shard per process, but there are " + number(plan.shards) + " for " +
                     number(world_size) + ": --logical-shards " + number(world_size) + ", and --grad-accum-steps 1");
  plan.shard_batch = plan.global_batch / plan.shards;
  if (reads_data(options) && plan.global_batch > dataset_size)
    throw UsageError("more samples per step than the set has: the global batch is " + number(plan.global_batch) +
                     ", the set has " + number(dataset_size));
  return plan;
}

Options planned(Options options, const BatchPlan& plan, int world_size) {
  options.nproc_per_node = world_size;
  options.logical_shards = plan.shards;
  options.global_batch_size = plan.global_batch;
  options.batch_size.reset();
  return options;
}

bool reads_data(const Options& options) { return !options.test_only && options.max_steps != 0 && options.epochs != 0; }

bool heeds_signals(const Options& options) {
  return saves(options.checkpoints, options.output_dir) && reads_data(options);
}

std::int64_t steps_per_epoch(const BatchPlan& plan, std::int64_t dataset_size) {
  return base::batches_per_epoch(dataset_size, plan.shards, plan.shard_batch, /*drop_last=*/false);
}

StepPlace place_of_step(std::int64_t step, std::int64_t steps_per_epoch) {
  const std::int64_t index = step - 1;
  return {
      .epoch = index / steps_per_epoch, .batch = index % steps_per_epoch, .ends_epoch = step % steps_per_epoch == 0};
}

std::int64_t steps_in_run(const Options& options, std::int64_t steps_per_epoch, std::int64_t ahead) {
  if (options.max_steps && !options.epochs) return *options.max_steps;
  const std::int64_t steps = options.epochs.value_or(1) * steps_per_epoch - ahead;
  return options.max_steps ? std::min(*options.max_steps, steps) : steps;
}

}  // namespace lockstep::train
