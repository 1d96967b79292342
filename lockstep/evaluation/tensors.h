#pragma once

// Tensors as metrics::TensorBoard takes them, which knows no libtorch. Pure functions; tensors on any device.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/metrics/summary.h"

namespace lockstep::evaluation {

/// A picture [channels, height, width] with 1, 3 or 4 channels, or a grey one [height, width]: uint8 as it is, floats
/// from 0 to 1 times 255, others cut off, as PyTorch's add_image() takes them; what is not a number is 0. UsageError
/// for other shapes and types.
[[nodiscard]] metrics::Pixels pixels(const at::Tensor& picture);

/// All numbers of a tensor, row-major. UsageError when it is complex or undefined.
[[nodiscard]] std::vector<double> values(const at::Tensor& tensor);

}  // namespace lockstep::evaluation

namespace lockstep {
using evaluation::pixels;
using evaluation::values;
}  // namespace lockstep
