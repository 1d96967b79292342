#include "lockstep/amp/opt_level.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

// The class of their own tensors, as Apex's convert_network().
bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module);
}

void cast(torch::nn::Module& model, at::ScalarType dtype, bool keep_batch_norm) {
  for (const auto& module : model.modules()) {
    if (keep_batch_norm && is_batch_norm(*module)) continue;
    for (at::Tensor& tensor : module->parameters(/*recurse=*/false))
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
    for (at::Tensor& tensor : module->buffers(/*recurse=*/false))
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
  }
}

GradScalerOptions scaler_of(const InitializeOptions& options, bool dynamic) {
  if (const auto fixed = options.loss_scale)
    return {.init_scale = *fixed, .enabled = *fixed != 1, .min_scale = *fixed, .max_scale = *fixed};
  return {.init_scale = std::min(options.max_loss_scale, std::max(options.min_loss_scale, 65536.0)),
          .enabled = dynamic,
          .min_scale = options.min_loss_scale,
          .max_scale = options.max_loss_scale};
}

}  // namespace

Precision initialize(torch::nn::Module& model, std::string_view opt_level, const InitializeOptions& options) {
  const std::string level(opt_level);
  if (level != "O0" && level != "O1" && level != "O2" && level != "O3")
    throw UsageError("opt_level is '" + level + "', must be O0, O1, O2 or O3 (a letter and a digit)");
  if (options.cast_model_type == Amp::none) throw UsageError("cast_model_type is none, must be fp16 or bf16");
  if (options.keep_batchnorm_fp32 == false && level != "O3")
    throw UsageError("keep_batchnorm_fp32 is false with " + level + ", which keeps it; O3 casts BatchNorm, too");

  const bool dynamic = options.cast_model_type == Amp::fp16;
  if (level == "O0") {
    cast(model, at::kFloat, false);
    return {.scaler = scaler_of(options, false)};
  }
  if (level == "O3") {
    cast(model, dynamic ? at::kHalf : at::kBFloat16, options.keep_batchnorm_fp32.value_or(false));
    return {.scaler = scaler_of(options, false)};
  }
  return {.amp = options.cast_model_type, .scaler = scaler_of(options, dynamic)};
}

}  // namespace lockstep::amp
