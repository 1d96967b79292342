#include "lockstep/parallel/memory_format.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/flatten_native.h>
#include <ATen/ops/reshape_native.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <utility>

namespace lockstep::parallel {
namespace {

thread_local bool wants_channels_last = false;

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

// Not for a leaf, on which hooks would pile up.
void keep_format_of_gradient(const at::Tensor& pictures) {
  if (!wants_channels_last || !at::GradMode::is_enabled() || !pictures.requires_grad() || pictures.is_leaf() ||
      !is_channels_last(pictures))
    return;
  pictures.register_hook([](const at::Tensor& gradient) { return channels_last(gradient); });
}

at::Tensor flatten(const at::Tensor& tensor, std::int64_t first, std::int64_t last) {
  keep_format_of_gradient(tensor);
  return at::native::flatten(tensor, first, last);
}

at::Tensor reshape(const at::Tensor& tensor, c10::SymIntArrayRef sizes) {
  keep_format_of_gradient(tensor);
  return at::native::reshape_symint(tensor, sizes);
}

}  // namespace

// Both are made of other operators, so autograd has no kernels of its own for them that these would replace.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("flatten.using_ints", flatten);
  library.impl("reshape", reshape);
}

bool keep_channels_last(bool wanted) { return std::exchange(wants_channels_last, wanted); }

at::Tensor channels_last(const at::Tensor& tensor) {
  if (tensor.dim() != 4) return tensor;
  if (tensor.size(1) == 1 && tensor.is_contiguous()) {
    const std::int64_t row = tensor.size(3);
    return tensor.as_strided(tensor.sizes(), {tensor.size(2) * row, 1, row, 1});
  }
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

void make_channels_last(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters())
    if (parameter.defined() && parameter.dim() == 4)
      parameter.set_data(parameter.detach().to(parameter.options(), /*non_blocking=*/false, /*copy=*/true,
                                               at::MemoryFormat::ChannelsLast));
}

}  // namespace lockstep::parallel
