#include "lockstep/train/rate_schedule.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/optim/schedules/composed.h"
#include "lockstep/optim/schedules/cosine.h"
#include "lockstep/optim/schedules/factors.h"

namespace lockstep::train {
namespace {

optim::Schedule scheduler_of(const LrOptions& lr, std::int64_t epochs) {
  if (lr.scheduler == "steplr") return optim::StepLR{.step_size = lr.step_size, .gamma = lr.gamma};
  if (lr.scheduler == "multisteplr") return optim::MultiStepLR{.milestones = lr.milestones, .gamma = lr.gamma};
  if (lr.scheduler == "exponentiallr") return optim::ExponentialLR{.gamma = lr.gamma};
  if (lr.scheduler == "cosineannealinglr") return optim::CosineAnnealingLR{.T_max = epochs, .eta_min = lr.min};
  return optim::ConstantLR{.factor = 1};
}

optim::Schedule warmup_of(const LrOptions& lr) {
  if (lr.warmup_method == "linear")
    return optim::LinearLR{.start_factor = lr.warmup_decay, .total_iters = lr.warmup_epochs};
  return optim::ConstantLR{.factor = lr.warmup_decay, .total_iters = lr.warmup_epochs};
}

}  // namespace

std::int64_t epochs_in_run(const Options& options, std::int64_t epoch_steps, std::int64_t total_steps) {
  if (options.epochs) return *options.epochs;
  return epoch_steps > 0 ? (total_steps + epoch_steps - 1) / epoch_steps : 0;
}

Schedule make_schedule(const Options& options, std::int64_t epoch_steps, std::int64_t total_steps) {
  const LrOptions& lr = options.lr_schedule;
  const double base = options.lr;
  if (total_steps == 0 || (lr.scheduler == "constant" && lr.warmup_epochs == 0))
    return [base](std::int64_t) { return base; };
  const std::int64_t epochs = epochs_in_run(options, epoch_steps, total_steps);
  if (lr.warmup_epochs >= epochs && lr.scheduler != "constant")
    throw UsageError("--lr-warmup-epochs " + std::to_string(lr.warmup_epochs) + " of " + std::to_string(epochs) +
                     " epochs leaves none to --lr-scheduler " + lr.scheduler + ": fewer, or more --epochs");
  optim::Schedule schedule = scheduler_of(lr, epochs - lr.warmup_epochs);
  if (lr.warmup_epochs > 0)
    schedule = optim::SequentialLR{.schedulers = {warmup_of(lr), schedule}, .milestones = {lr.warmup_epochs}};
  return [=](std::int64_t step) { return schedule.at(base, std::uint64_t(place_of_step(step, epoch_steps).epoch)).lr; };
}

double ema_decay(const ModelEmaOptions& options, std::int64_t global_batch, std::int64_t epochs) {
  const double adjust = double(global_batch) * double(options.steps) / double(std::max<std::int64_t>(epochs, 1));
  return 1 - std::min(1.0, (1 - options.decay) * adjust);
}

}  // namespace lockstep::train
