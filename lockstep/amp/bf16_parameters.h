#pragma once

// Which parameters forward reads in bfloat16 alone.

#include <torch/nn/module.h>

#include <unordered_set>

namespace lockstep::amp {

/// The parameters of `module` that autocast casts to bfloat16 wherever they are used: weights and biases of
/// Linear, Bilinear, convolutions and transposed convolutions. BatchNorm and the like keep float32.
std::unordered_set<const at::TensorImpl*> bf16_parameters(const torch::nn::Module& module);

}  // namespace lockstep::amp
