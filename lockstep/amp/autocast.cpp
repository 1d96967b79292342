#include "lockstep/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

AutocastOptions options_of(Amp amp, c10::DeviceType device) {
  return {.device = device, .dtype = amp == Amp::fp16 ? at::kHalf : at::kBFloat16, .enabled = amp != Amp::none};
}

const AutocastOptions& checked(const AutocastOptions& options) {
  if (!at::autocast::is_autocast_available(options.device))
    throw UsageError("there is no autocast for device " + c10::DeviceTypeName(options.device, true));
  const at::ScalarType dtype = options.dtype.value_or(at::kBFloat16);
  if (options.device == at::kCPU && dtype != at::kBFloat16 && dtype != at::kHalf)
    throw UsageError(std::string("autocast on the CPU is to ") + c10::toString(dtype) + ", must be BFloat16 or Half");
  return options;
}

}  // namespace

Autocast::Autocast(Amp amp, c10::DeviceType device) : Autocast(options_of(amp, device)) {}

Autocast::Autocast(const AutocastOptions& options)
    : device_(checked(options).device),
      enabled_before_(at::autocast::is_autocast_enabled(device_)),
      cache_before_(at::autocast::is_autocast_cache_enabled()),
      dtype_before_(at::autocast::get_autocast_dtype(device_)) {
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, options.enabled);
  at::autocast::set_autocast_dtype(device_, options.dtype.value_or(dtype_before_));
  at::autocast::set_autocast_cache_enabled(options.cache_enabled.value_or(cache_before_));
}

// With the outermost scope go the casts that autocast keeps for weights without a copy.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(cache_before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
  at::autocast::set_autocast_enabled(device_, enabled_before_);
}

}  // namespace lockstep::amp
