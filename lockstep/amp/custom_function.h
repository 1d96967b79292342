#pragma once

// Autocast in an autograd function of one's own, as Python's torch.amp.custom_fwd and custom_bwd.
//
//   struct Scale : torch::autograd::Function<Scale> {
//     static at::Tensor forward(AutogradContext* context, const at::Tensor& input) {
//       const lockstep::CustomForward precision(*context, at::kFloat);
//       return precision.cast(input) * 3;                    // in float32, and with autocast off
//     }
//     static variable_list backward(AutogradContext* context, variable_list gradients) {
//       const lockstep::CustomBackward precision(*context);  // as in forward
//       return {gradients[0] * 3};
//     }
//   };

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/amp/autocast.h"

namespace torch::autograd {
struct AutogradContext;
}

namespace lockstep::amp {

/// At the beginning of forward, for its length, on this thread.
class [[nodiscard]] CustomForward {
 public:
  /// Without `cast_inputs` forward runs under the autocast that is on, and this notes which. With it, where autocast is
  /// on, autocast is off in forward and cast() casts. UsageError for a device without autocast, and for a `cast_inputs`
  /// that is no floating dtype.
  explicit CustomForward(torch::autograd::AutogradContext& context, std::optional<c10::ScalarType> cast_inputs = {},
                         c10::DeviceType device = c10::kCPU);

  /// What forward computes with: floating tensors of the device, but float64, in `cast_inputs`; others as they are. An
  /// input's gradient comes in the input's own dtype all the same.
  at::Tensor cast(const at::Tensor& input) const;

 private:
  c10::DeviceType device_;
  std::optional<c10::ScalarType> to_;  ///< none: nothing is cast
  std::optional<Autocast> island_;
};

/// At the beginning of backward, for its length: autocast as forward had it, whatever holds where backward() was
/// called.
class [[nodiscard]] CustomBackward {
 public:
  /// UsageError for a context whose forward had no CustomForward.
  explicit CustomBackward(torch::autograd::AutogradContext& context);

 private:
  Autocast autocast_;
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::CustomBackward;
using amp::CustomForward;
}  // namespace lockstep
