#pragma once

// Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", as torchvision builds it.

#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// torchvision's mobilenet_v2, with its names (features.0.0.weight … classifier.1.bias) and initial weights. Pictures
/// of any size; it is not a part of the model.
std::shared_ptr<ImageModel> make_mobilenet_v2(const ImageTask& task);

}  // namespace lockstep::models
