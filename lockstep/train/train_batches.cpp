#include "lockstep/train/train_batches.h"

#include "lockstep/train/shard_source.h"

namespace lockstep::train {
namespace {

data::BatchSource source_of(const Options& options, const Input& input, const RunSize& run, parallel::ShardSpan span) {
  const auto seed = std::uint64_t(options.seed);
  data::BatchSource source = shard_source(input.train, run.plan, span, seed);
  if (!input.mix) return source;
  return mixed_source(std::move(source), {input.mix, input.task.classes, seed}, span, run.epoch_steps);
}

}  // namespace

// Twice as many batches as workers ahead, as Python's DataLoader.
data::LoaderOptions loader_options(const Options& options) {
  return {.workers = options.workers, .prefetch = 2 * options.workers, .timeout_seconds = options.timeout};
}

TrainBatches::TrainBatches(const Options& options, const Input& input, const RunSize& run, parallel::ShardSpan span)
    : loader_(source_of(options, input, run, span), run.first_step, run.total_steps + 1, loader_options(options)) {}

// The loader counts from its beginning.
InputWork TrainBatches::work_done() {
  InputWork all;
  for (const data::WorkerStatistics& worker : loader_.statistics().workers) {
    all.prepare += worker.source_seconds;
    all.decode += worker.decode_seconds;
  }
  const InputWork work{all.prepare - told_.prepare, all.decode - told_.decode};
  told_ = all;
  return work;
}

}  // namespace lockstep::train
