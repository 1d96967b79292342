#pragma once

// Tan, Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", as torchvision builds it.

#include <memory>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// torchvision's efficientnet_b0, with its names (features.0.0.weight … classifier.1.bias) and initial weights.
/// Pictures of any size; it is not a part of the model. In training the residual branches of single pictures are
/// dropped, with probabilities from 0 up to 0.2 · 15/16 from the first block to the last (stochastic depth).
std::shared_ptr<ImageModel> make_efficientnet_b0(const ImageTask& task);

}  // namespace lockstep::models
