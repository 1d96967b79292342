#include "lockstep/models/image_model.h"

#include <torch/nn/modules/linear.h>

#include "lockstep/models/head.h"

namespace lockstep::models {

at::Tensor ImageModel::through(const std::string& name, const at::Tensor& x) const {
  return through_layer(*named_children()[name], name, x);
}

std::string last_layer(const ImageModel& model) {
  std::string last;
  for (const auto& module : model.named_modules("", /*include_self=*/false))
    if (module.value()->as<torch::nn::Linear>() != nullptr) last = module.key();
  return last;
}

}  // namespace lockstep::models
