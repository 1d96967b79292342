#include "lockstep/amp/device_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_set>

#include "lockstep/amp/grad_scaler.h"

namespace lockstep::amp {
namespace {

at::Tensor number_on(at::Device device, const at::Scalar& value, at::ScalarType dtype) {
  const c10::InferenceMode no_inference(false);  // a loss of training is scaled by it
  return at::full({}, value, at::TensorOptions(dtype).device(device));
}

// CUDA's kernel takes an int, and keeps the low bits of what is longer.
std::int64_t interval_of(const GradScalerOptions& options) {
  return std::min<std::int64_t>(options.growth_interval, std::numeric_limits<std::int32_t>::max());
}

}  // namespace

// The operator grows the scale where the tracker comes to be the interval, not where it is beyond.
DeviceScale::DeviceScale(const ScalerState& state, const GradScalerOptions& options, at::Device device)
    : scale_(number_on(device, state.scale, at::kFloat)),
      growth_tracker_(number_on(device, std::min(state.growth_tracker, interval_of(options) - 1), at::kInt)) {}

at::Tensor DeviceScale::scale(const at::Tensor& loss) const { return loss * scale_; }

at::Tensor DeviceScale::unscale_(const std::vector<at::Tensor>& parameters) const {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;  // as the operator takes them
  std::unordered_set<const c10::TensorImpl*> seen;             // a tied parameter comes several times
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (gradient.defined() && seen.insert(gradient.unsafeGetTensorImpl()).second)
      by_dtype[gradient.scalar_type()].push_back(gradient);
  }
  at::Tensor found_inf = at::zeros_like(scale_);
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);  // rounded once, as on the host
  for (const auto& [dtype, gradients] : by_dtype)
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse);
  return found_inf;
}

void DeviceScale::update(const std::vector<at::Tensor>& found_infs, const GradScalerOptions& options) {
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  constexpr double kMost = std::numeric_limits<float>::max();
  last_found_inf_ = found_infs.front();
  for (std::size_t i = 1; i < found_infs.size(); ++i) last_found_inf_ = at::maximum(last_found_inf_, found_infs[i]);
  scale_ = scale_.clone();  // a loss that was scaled may have its backward yet
  at::_amp_update_scale_(scale_, growth_tracker_, last_found_inf_, options.growth_factor, options.backoff_factor,
                         interval_of(options));
  if (options.min_scale > 0 || options.max_scale < kMost)
    scale_.clamp_(at::Scalar(options.min_scale), at::Scalar(std::min(options.max_scale, kMost)));
}

ScalerState DeviceScale::read() const {
  return {.scale = double(scale_.item<float>()), .growth_tracker = growth_tracker_.item<std::int32_t>()};
}

bool DeviceScale::overflowed() const { return last_found_inf_.defined() && last_found_inf_.item<float>() != 0; }

}  // namespace lockstep::amp
