#include "lockstep/train/engine_options.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lockstep/train/make_model.h"
#include "lockstep/train/rate_schedule.h"

namespace lockstep::train {
namespace {

// torchvision's: until the rate has warmed up the average is the weights, and each epoch begins with an update.
std::optional<parallel::EmaOptions> ema_options(const Options& options, const RunSize& run) {
  if (!options.model_ema.on) return {};
  const std::int64_t epochs = epochs_in_run(options, run.epoch_steps, run.total_steps);
  return parallel::EmaOptions{.decay = ema_decay(options.model_ema, run.plan.global_batch, epochs),
                              .interval = std::uint64_t(options.model_ema.steps),
                              .warmup_steps = std::uint64_t(options.lr_schedule.warmup_epochs * run.epoch_steps),
                              .steps_per_epoch = std::uint64_t(run.epoch_steps)};
}

parallel::Compression compression_of(const Options& options) {
  if (options.compression == "none") return parallel::Compression::none;
  return options.compression == "fp16" ? parallel::Compression::fp16 : parallel::Compression::bf16;
}

}  // namespace

parallel::DataParallelOptions engine_options(const Options& options, const RunSize& run) {
  return {.shards = run.plan.shards,
          .seed = std::uint64_t(options.seed),
          .amp = amp_of(options),
          .ema = ema_options(options, run),
          .channels_last = options.channels_last,
          .overlap_bytes = std::size_t(options.wave_bytes),
          .reduction = options.reduction == "fast" ? parallel::Reduction::fast : parallel::Reduction::exact,
          .compression = compression_of(options),
          .zero1 = options.zero1 != "none",
          .zero1_copy = options.zero1 == "copied"};
}

}  // namespace lockstep::train
