#pragma once

// The outputs of a model for samples of which each is several pictures.

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep::evaluation {

/// What `forward` makes of the samples of `data`. Samples of several crops (data::FiveCrop), [B, crops, channels,
/// height, width], go through crop by crop, and the output of a sample is the mean of its crops', [B, ...]. Any other
/// `data` goes through as it is.
at::Tensor outputs_of(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& data);

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::outputs_of;
}  // namespace lockstep
