#pragma once

// Huang, Liu, van der Maaten, Weinberger, "Densely Connected Convolutional Networks", as torchvision builds it.

#include <array>
#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// What a DenseNet is made of.
struct DenseNetKind {
  std::array<int, 4> layers = {6, 12, 24, 16};  ///< in each block
  std::int64_t growth = 32;                     ///< channels that a layer adds
  std::int64_t first = 64;                      ///< channels before the first block
};

/// torchvision's densenet121, with its names (features.conv0.weight, features.denseblock1.denselayer1.norm1.weight …
/// classifier.bias) and initial weights. Pictures of 29x29 and larger; their size is not a part of the model.
std::shared_ptr<ImageModel> make_densenet(const DenseNetKind& kind, const ImageTask& task);

}  // namespace lockstep::models
