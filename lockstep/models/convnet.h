#pragma once

// The ConvNet of the PyTorch MNIST tutorials.

#include <torch/nn/modules/container/sequential.h>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// layer1: Conv 5x5 channels→16 pad 2, BatchNorm, ReLU, MaxPool 2; layer2: the same 16→32;
/// fc: Linear(height/4 · width/4 · 32, classes). Names: layer1.0.weight, layer1.1.running_mean, … fc.bias.
class ConvNet : public ImageModel {
 public:
  explicit ConvNet(const ImageTask& task = {});
  at::Tensor forward(at::Tensor images) override;

 private:
  torch::nn::Sequential layer1_;
  torch::nn::Sequential layer2_;
};

}  // namespace lockstep::models
