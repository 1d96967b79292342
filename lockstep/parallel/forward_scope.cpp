#include "lockstep/parallel/forward_scope.h"

#include <utility>

#include "lockstep/parallel/memory_format.h"

namespace lockstep::parallel {

ForwardScope::ForwardScope(const DataParallelOptions& options, at::Device device)
    : device_(device),
      mixed_precision_(options.amp != Amp::none),
      channels_last_(options.channels_last),
      channels_last_before_(keep_channels_last(channels_last_)) {
  if (mixed_precision_) autocast_.emplace(options.amp, device.type());
}

ForwardScope::~ForwardScope() { keep_channels_last(channels_last_before_); }

at::Tensor ForwardScope::input(at::Tensor tensor) const {
  if (!device_.is_cpu() && tensor.defined()) tensor = tensor.to(device_);
  return channels_last_ ? channels_last(tensor) : std::move(tensor);
}

at::Tensor ForwardScope::output(at::Tensor tensor) const {
  return mixed_precision_ && tensor.element_size() == 2 && tensor.is_floating_point() ? tensor.to(at::kFloat)
                                                                                      : std::move(tensor);
}

}  // namespace lockstep::parallel
