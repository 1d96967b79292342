#pragma once

// The layers behind the features, of which the last one may be replaced.

#include <torch/nn/modules/container/sequential.h>

#include <string>

namespace lockstep::models {

/// A row of layers by PyTorch's names that follows replace_module(), which a Sequential does not:
///
///   model->named_children()["classifier"]->replace_module("6", torch::nn::Linear(4096, 5));
class HeadImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(at::Tensor x);
};
TORCH_MODULE(Head);

/// What `layer`, registered as `name`, makes of x. UsageError unless it is a Linear, a Sequential or a Head.
at::Tensor through_layer(torch::nn::Module& layer, const std::string& name, const at::Tensor& x);

}  // namespace lockstep::models
