#pragma once

// clone() of a layer that is derived from one of PyTorch's, whose own clone() would make that one.

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <utility>

namespace lockstep::nn {

/// `to`, a new layer made with the options of `from`, with copies of its parameters and buffers on `device`.
template <class Layer>
std::shared_ptr<torch::nn::Module> copied(const torch::nn::Module& from, std::shared_ptr<Layer> to,
                                          const std::optional<at::Device>& device) {
  const at::NoGradGuard no_grad;
  const auto copy_of = [&](const at::Tensor& tensor) {
    return device ? tensor.to(*device, false, true) : tensor.clone();
  };
  const auto parameters = from.named_parameters(/*recurse=*/false), buffers = from.named_buffers(/*recurse=*/false);
  for (auto& item : to->named_parameters(/*recurse=*/false)) {
    const at::Tensor& original = parameters[item.key()];
    item.value().set_data(copy_of(original.detach()));
    item.value().set_requires_grad(original.requires_grad());
  }
  for (auto& item : to->named_buffers(/*recurse=*/false)) item.value().set_data(copy_of(buffers[item.key()]));
  to->train(from.is_training());
  return to;
}

}  // namespace lockstep::nn
