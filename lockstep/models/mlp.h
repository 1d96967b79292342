#pragma once

// A multilayer perceptron.

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// Flatten, fc1 = Linear(channels · height · width, 128), ReLU, Dropout(p) when p > 0, fc2 = Linear(128, classes).
class Mlp : public ImageModel {
 public:
  /// `dropout`: the probability p of a hidden unit to be dropped in training, 0 ≤ p ≤ 1.
  explicit Mlp(double dropout = 0, const ImageTask& task = {});
  at::Tensor forward(at::Tensor images) override;

 private:
  torch::nn::Linear fc1_;
  torch::nn::Dropout dropout_{nullptr};
};

}  // namespace lockstep::models
