#pragma once

// torch.nn.utils.clip_grad_norm_ without a wait for the device: libtorch's own in C++ brings the norm to the host at
// each call. For gradients that lie in .grad; lockstep::optim's are clipped by StepOptions::max_norm.

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::amp {

/// Multiplies all gradients of the parameters by max_norm / (norm + 1e-6) where that is below 1. Returns what the norm
/// of all of them together was: a tensor of no dimension, on the first gradient's device; 0 without gradients.
/// `norm_type`: p of the p-norm; infinity for the largest magnitude. A norm that is not a number makes all gradients
/// so, an infinite one those that are finite 0. With `error_if_nonfinite` either throws Error, before anything is
/// written; then the host waits. UsageError for max_norm below 0 and a norm_type of 0 or below.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2,
                           bool error_if_nonfinite = false);

}  // namespace lockstep::amp

namespace lockstep {
using amp::clip_grad_norm_;
}
