#pragma once

// He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition"; Xie et al., "Aggregated Residual Transformations
// for Deep Neural Networks" (ResNeXt); Zagoruyko, Komodakis, "Wide Residual Networks"; as torchvision builds them.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <array>
#include <memory>
#include <vector>

#include "lockstep/models/image_model.h"
#include "lockstep/nn/fusible.h"

namespace lockstep::models {

/// What a ResNet is made of.
struct ResNetKind {
  bool bottleneck = false;                   ///< blocks of 1x1, 3x3, 1x1 convolutions instead of two 3x3
  std::array<int, 4> blocks = {2, 2, 2, 2};  ///< in each layer
  std::int64_t groups = 1;                   ///< of a bottleneck's 3x3 convolution
  std::int64_t group_width = 64;             ///< channels of a group in the first layer; the others have multiples
  bool small_pictures = false;               ///< a stem for 32x32: 3x3 convolution of stride 1, no pooling
};

/// torchvision's resnet18 … resnet152, ResNeXt and Wide ResNet, with its names (conv1.weight, bn1, layer1.0.conv1 …
/// fc.bias) and initial weights. Pictures of any size; it is not a part of the model.
class ResNet : public ImageModel, public lockstep::nn::Fusible {
 public:
  ResNet(const ResNetKind& kind, std::int64_t channels, std::int64_t classes);
  at::Tensor forward(at::Tensor images) override;
  /// The stem; its blocks do the same.
  std::vector<lockstep::nn::Fusion> fuse_layers() override;

 private:
  torch::nn::Sequential layer(const ResNetKind& kind, std::int64_t planes, int blocks, std::int64_t stride);
  at::Tensor stem(const at::Tensor& x);

  bool small_pictures_;
  std::int64_t planes_ = 64;  // of what the next layer reads
  torch::nn::Conv2d conv1_{nullptr};
  std::shared_ptr<torch::nn::BatchNorm2dImpl> bn1_;
  std::array<torch::nn::Sequential, 4> layers_{nullptr, nullptr, nullptr, nullptr};
};

}  // namespace lockstep::models
