#pragma once

// How the rate and the average of the weights go, by the options: pure functions of the number of the step.

#include <cstdint>
#include <functional>

#include "lockstep/train/batch_plan.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// The learning rate of each step (from 1). A pure function, so that a restart in the middle finds the same.
using Schedule = std::function<double(std::int64_t step)>;

/// Epochs of the run, one that --max-steps cuts off counted whole.
std::int64_t epochs_in_run(const Options& options, std::int64_t epoch_steps, std::int64_t total_steps);

/// torchvision's: --lr-scheduler and the warm-up before it, in steps of an epoch. UsageError when the warm-up leaves no
/// epoch to the scheduler.
Schedule make_schedule(const Options& options, std::int64_t epoch_steps, std::int64_t total_steps);

/// The decay of --model-ema from one update to the next, as torchvision computes it:
/// 1 - min(1, (1 - decay) * global_batch * steps / epochs).
double ema_decay(const ModelEmaOptions& options, std::int64_t global_batch, std::int64_t epochs);

}  // namespace lockstep::train
