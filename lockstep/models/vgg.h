#pragma once

// Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", as torchvision builds it.

#include <array>
#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// What a VGG is made of.
struct VggKind {
  std::array<int, 5> convolutions = {1, 1, 2, 2, 2};  ///< before each pooling
  bool batch_norm = false;
};

/// torchvision's vgg11 … vgg19 and vgg11_bn … vgg19_bn, with its names (features.0.weight … classifier.6.bias) and
/// initial weights. Pictures of 32x32 and larger; their size is not a part of the model.
std::shared_ptr<ImageModel> make_vgg(const VggKind& kind, const ImageTask& task);

}  // namespace lockstep::models
