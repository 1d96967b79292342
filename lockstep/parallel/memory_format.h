#pragma once

// Channels-last pictures and convolutions (NHWC in memory, NCHW in shape), as torch.channels_last in Python.

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::parallel {

/// `tensor` with channels-last strides if it has four dimensions, else as it is. One channel needs no copy, and
/// gets the strides that make PyTorch choose its channels-last kernels, which contiguous() would not give.
at::Tensor channels_last(const at::Tensor& tensor);

/// Gives the module's parameters of four dimensions channels-last strides. Before autograd has seen them.
void make_channels_last(const torch::nn::Module& module);

/// From now on, on this thread and if `wanted`: pictures in channels-last format that `flatten` or `reshape` turn
/// into rows get their gradient back in that format. PyTorch would hand it on with the strides of the rows, and
/// max_pool2d's backward then works on copies of the gradient, the indices and its result. The same bits.
/// Returns what was wanted before; ForwardScope sets it for a forward pass.
bool keep_channels_last(bool wanted);

}  // namespace lockstep::parallel
