#pragma once

// He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", as torchvision builds it.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <array>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// What a ResNet is made of.
struct ResNetKind {
  bool bottleneck = false;                   ///< blocks of 1x1, 3x3, 1x1 convolutions instead of two 3x3
  std::array<int, 4> blocks = {2, 2, 2, 2};  ///< in each layer
  bool small_pictures = false;               ///< a stem for 32x32: 3x3 convolution of stride 1, no pooling
};

/// torchvision's resnet18 … resnet152, with its names (conv1.weight, bn1, layer1.0.conv1 … fc.bias),
/// initial weights and sizes: any picture from 32 pixels on, or any at all with the small stem.
class ResNet : public ImageModel {
 public:
  ResNet(const ResNetKind& kind, std::int64_t channels, std::int64_t classes);
  at::Tensor forward(at::Tensor images) override;

 private:
  torch::nn::Sequential layer(const ResNetKind& kind, std::int64_t planes, int blocks, std::int64_t stride);
  void draw_weights();

  bool small_pictures_;
  std::int64_t planes_ = 64;  // of what the next layer reads
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::array<torch::nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
};

}  // namespace lockstep::models
