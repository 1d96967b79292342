#include "lockstep/models/head.h"

#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"

namespace lockstep::models {

at::Tensor HeadImpl::forward(at::Tensor x) {
  auto built = begin();
  for (const auto& layer : named_children()) {
    x = layer.value() == built->ptr() ? built->forward(x) : through_layer(*layer.value(), layer.key(), x);
    ++built;
  }
  return x;
}

at::Tensor through_layer(torch::nn::Module& layer, const std::string& name, const at::Tensor& x) {
  if (auto* linear = layer.as<torch::nn::Linear>()) return linear->forward(x);
  if (auto* head = layer.as<Head>()) return head->forward(x);
  if (auto* row = layer.as<torch::nn::Sequential>()) return row->forward(x);
  throw UsageError("'" + name + "' was replaced by a " + layer.name() + ", a Linear or a Sequential expected");
}

}  // namespace lockstep::models
