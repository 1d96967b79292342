#pragma once

// A linear layer that computes its gradients where they belong:
//
//   lockstep::nn::Linear(4096, 4096)
//
// Options, parameters, their names and initial values are those of torch::nn::Linear, and so are state dicts. With an
// optimizer of ours, backward gives the products that make the gradients of weight and bias the memory that the ranks
// share for their output. Elsewhere autograd computes them in memory of its own, from which the engine copies them:
// with millions of weights and a small batch that is a large part of backward.
//
// The products are PyTorch's, with the same operands, and so are the bits. A weight that is used three times or
// more within one backward has its gradients added in another order. By PyTorch's layer is computed what has no
// such memory (no engine, an optimizer of torch::optim), inputs of one dimension or of another layout than row by
// row, devices other than the CPU, a dtype of the weight that is not the one computed in, and tensors of
// forward-mode derivatives. In its own memory a gradient comes that has none in ours: the second one of a step,
// which is added there, one that torch::autograd::grad() asks for, one with a hook on the parameter, one that is to
// be differentiated again (create_graph). Errors are PyTorch's.
//
// It is a torch::nn::Linear: by a pointer to that one calls PyTorch's forward. Not thread-safe, as all modules.

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <memory>
#include <optional>

#include "lockstep/amp/bf16_parameters.h"

namespace lockstep::nn {

class LinearImpl : public torch::nn::LinearImpl, public amp::ReadsAsItsBase {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  /// With the parameters of `linear`, not copies.
  explicit LinearImpl(const torch::nn::LinearImpl& linear) : torch::nn::LinearImpl(linear) {}
  at::Tensor forward(const at::Tensor& x);
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;
};
TORCH_MODULE(Linear);

/// For models that call at::linear, which is Python's F.linear: the same, with the same bits, and gradients that are
/// computed in their slots where those of a Linear would be. It adds the bias within the product, while libtorch's
/// layer, and so ours, goes over an output of more than two dimensions once more. `bias` may be undefined, and is
/// PyTorch's to expand where it is a single number. Errors are PyTorch's.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace lockstep::nn
