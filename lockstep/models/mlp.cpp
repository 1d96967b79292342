#include "lockstep/models/mlp.h"

namespace lockstep::models {

Mlp::Mlp(double dropout, const ImageTask& task)
    : ImageModel("Mlp"), fc1_(task.channels * task.height * task.width, 128) {
  register_module("fc1", fc1_);
  if (dropout > 0) dropout_ = register_module("dropout", torch::nn::Dropout(dropout));
  register_module("fc2", torch::nn::Linear(128, task.classes));
}

at::Tensor Mlp::forward(at::Tensor images) {
  at::Tensor hidden = torch::relu(fc1_(images.flatten(1)));
  if (dropout_) hidden = dropout_(hidden);
  return through("fc2", hidden);
}

}  // namespace lockstep::models
