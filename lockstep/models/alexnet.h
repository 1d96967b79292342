#pragma once

// Krizhevsky, "One weird trick for parallelizing convolutional neural networks", as torchvision builds it.

#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// torchvision's alexnet, with its names (features.0.weight … classifier.6.bias) and initial weights. Pictures of
/// 63x63 and larger; their size is not a part of the model.
std::shared_ptr<ImageModel> make_alexnet(const ImageTask& task);

}  // namespace lockstep::models
