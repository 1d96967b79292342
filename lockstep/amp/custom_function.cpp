#include "lockstep/amp/custom_function.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

// In the context's saved data: device, dtype, and whether autocast is to be on in backward.
constexpr const char* kForward = "lockstep.custom_forward";

c10::DeviceType checked_device(c10::DeviceType device, const std::optional<c10::ScalarType>& cast_inputs) {
  if (!at::autocast::is_autocast_available(device))
    throw UsageError("there is no autocast for device " + c10::DeviceTypeName(device, true));
  if (cast_inputs && !c10::isFloatingType(*cast_inputs))
    throw UsageError(std::string("custom_fwd: cast_inputs is ") + c10::toString(*cast_inputs) +
                     ", must be a floating dtype");
  return device;
}

AutocastOptions options_of_forward(torch::autograd::AutogradContext& context) {
  const auto found = context.saved_data.find(kForward);
  if (found == context.saved_data.end())
    throw UsageError("CustomBackward: forward of this function had no CustomForward, whose autocast it repeats");
  const std::vector<std::int64_t> told = found->second.toIntVector();
  return {.device = c10::DeviceType(told[0]), .dtype = c10::ScalarType(told[1]), .enabled = told[2] != 0};
}

}  // namespace

CustomForward::CustomForward(torch::autograd::AutogradContext& context, std::optional<c10::ScalarType> cast_inputs,
                             c10::DeviceType device)
    : device_(checked_device(device, cast_inputs)) {
  const bool on = at::autocast::is_autocast_enabled(device_);
  context.saved_data[kForward] = c10::IValue(
      std::vector<std::int64_t>{std::int64_t(device_), std::int64_t(at::autocast::get_autocast_dtype(device_)),
                                std::int64_t(on && !cast_inputs)});
  if (!on || !cast_inputs) return;
  to_ = cast_inputs;
  island_.emplace(AutocastOptions{.device = device_, .enabled = false});
}

at::Tensor CustomForward::cast(const at::Tensor& input) const {
  const bool casts = to_ && input.defined() && input.device().type() == device_ && input.is_floating_point() &&
                     input.scalar_type() != at::kDouble;
  return casts ? input.to(*to_) : input;
}

CustomBackward::CustomBackward(torch::autograd::AutogradContext& context) : autocast_(options_of_forward(context)) {}

}  // namespace lockstep::amp
