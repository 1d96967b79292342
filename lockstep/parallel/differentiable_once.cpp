#include "lockstep/parallel/differentiable_once.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <utility>

namespace lockstep::parallel {

std::vector<at::Tensor> differentiable_once(std::vector<at::Tensor> gradients, const std::vector<at::Tensor>& of,
                                            const std::string& error) {
  const bool wanted = at::GradMode::is_enabled() && std::any_of(of.begin(), of.end(), [](const at::Tensor& tensor) {
                        return tensor.defined() && tensor.requires_grad();
                      });
  if (!wanted) return gradients;
  for (at::Tensor& gradient : gradients)
    if (gradient.defined()) gradient = gradient.detach().requires_grad_(true);
  torch::autograd::DelayedError delayed(error, std::int64_t(gradients.size()));
  return delayed.apply(std::move(gradients));
}

}  // namespace lockstep::parallel
