#pragma once

// Apex's levels of mixed precision, amp.initialize(model, optimizer, opt_level), as options of ours:
//
//   const auto precision = lockstep::amp::initialize(*model, "O1");
//   lockstep::DistributedDataParallel ddp(model, world.group(), {.amp = precision.amp});
//   lockstep::GradScaler scaler(precision.scaler);

#include <optional>
#include <string_view>

#include "lockstep/amp/autocast.h"
#include "lockstep/amp/grad_scaler.h"

namespace torch::nn {
class Module;
}

namespace lockstep::amp {

/// Apex's arguments; what is not set is the level's own.
struct InitializeOptions {
  Amp cast_model_type = Amp::fp16;               ///< the 16 bits of O1 to O3: fp16 or bf16
  std::optional<bool> keep_batchnorm_fp32 = {};  ///< a choice for O3 alone, there false
  std::optional<double> loss_scale = {};         ///< a fixed scale; O1 and O2 in fp16: dynamic, else none
  double min_loss_scale = 0;
  double max_loss_scale = 16777216;  ///< 2^24; of the dynamic scale, which begins at 2^16 or the nearest to it
};

/// What DataParallelOptions::amp and GradScaler take.
struct Precision {
  Amp amp = Amp::none;
  GradScalerOptions scaler;  ///< not enabled where nothing is scaled
};

/// | level | arithmetic | weights | scale |
/// |---|---|---|---|
/// | O0 | float32; the model is cast to it | float32 | none |
/// | O1 | 16 bits where they are safe (autocast's lists) | float32 | dynamic |
/// | O2 | as O1; with bf16 linear layers and convolutions read copies | float32 | dynamic |
/// | O3 | 16 bits; the model is cast to them, but for BatchNorm where it is kept | 16 bits | none |
///
/// The float32 weights of O0 to O2 are the masters, too; those of O3 are for an optimizer of torch::optim. bf16 has
/// float32's range: nothing is scaled unless loss_scale is set. A fixed scale skips a step that overflows and
/// stays as it is, where Apex takes the step. UsageError for another level, and for what a level cannot have.
Precision initialize(torch::nn::Module& model, std::string_view opt_level, const InitializeOptions& options = {});

}  // namespace lockstep::amp
