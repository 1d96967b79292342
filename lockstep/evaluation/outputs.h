#pragma once

// The outputs of a model: for samples of which each is several pictures, and held against targets.

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep::evaluation {

/// What `forward` makes of the samples of `data`. Samples of several crops (data::FiveCrop), [B, crops, channels,
/// height, width], go through crop by crop, and the output of a sample is the mean of its crops', [B, ...]. Any other
/// `data` goes through as it is.
at::Tensor outputs_of(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& data);

/// output - target, for autograd too. UsageError that names the shapes unless they are equal: [N, 1] minus [N] would be
/// [N, N], each output held against every target.
at::Tensor difference(const at::Tensor& output, const at::Tensor& target);

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::difference;
using evaluation::outputs_of;
}  // namespace lockstep
