#include "lockstep/models/image_model.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/base/error.h"

namespace lockstep::models {

at::Tensor ImageModel::through(const std::string& name, const at::Tensor& x) const {
  const std::shared_ptr<torch::nn::Module> layer = named_children()[name];
  if (auto* linear = layer->as<torch::nn::Linear>()) return linear->forward(x);
  if (auto* row = layer->as<torch::nn::Sequential>()) return row->forward(x);
  throw UsageError("'" + name + "' was replaced by a " + layer->name() + ", a Linear or a Sequential expected");
}

}  // namespace lockstep::models
