#pragma once

// The fused layers' arithmetic on tensors, without autograd: kernels.h by threads.

#include <ATen/core/Tensor.h>

#include "lockstep/nn/kernels.h"

namespace lockstep::nn {

/// Pictures [N, C, H, W] of float or bfloat16 whose memory is dense, in either order.
struct Pictures {
  at::Tensor tensor;
  Planes planes;
  at::MemoryFormat format{};  ///< of what is computed of them, and of its gradient
};

/// Whether the channels of a pixel lie side by side.
bool is_channels_last(const at::Tensor& pictures);

/// `tensor`, or a dense copy of it.
Pictures dense_pictures(const at::Tensor& tensor);

/// How each channel is normalised.
struct Normalization {
  double count = 0;    ///< values per channel
  at::Tensor moments;  ///< float64 [2, C]: mean; one over the deviation
  at::Tensor affine;   ///< float32 [2, C]: scale and shift, weight and bias included
};

/// What a layer has: float32 [C], or undefined.
struct NormTensors {
  at::Tensor weight, bias, running_mean, running_var;
};

/// By the values of `pictures`. The running statistics move by `momentum` of the way to these, with the variance of a
/// sample.
Normalization normalization_of(const Pictures& pictures, const NormTensors& layer, double momentum, double eps);
/// By the running statistics.
Normalization running_normalization(const NormTensors& layer, double eps);

/// relu(x · scale + shift + added). `added`, undefined or of the same sizes and dtype, counts before the one rounding.
at::Tensor normalized_relu(const Pictures& x, const Normalization& by, const at::Tensor& added);

/// What pooling leaves of that.
struct Pooled {
  at::Tensor y;
  at::Tensor from;    ///< the value of x behind each
  at::Tensor places;  ///< uint8, where it was in its window
};
/// Of channels-last pictures into which a window fits.
Pooled normalized_relu_pool(const Pictures& x, const Normalization& by, Pooling pooling);

struct NormGradients {
  at::Tensor x, added;      ///< as x
  at::Tensor weight, bias;  ///< float32
};
/// Of normalized_relu(x, by, undefined).
NormGradients relu_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy);
/// Of `output`, normalized_relu(x, by, added).
NormGradients added_relu_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy,
                                   const at::Tensor& output);
NormGradients pool_gradients(const Pictures& x, const Normalization& by, const at::Tensor& dy, Pooling pooling,
                             const Pooled& forward);

}  // namespace lockstep::nn
