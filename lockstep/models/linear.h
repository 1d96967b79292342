#pragma once

// Multinomial logistic regression.

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// Flatten, fc = Linear(channels · height · width, classes).
class LinearClassifier : public ImageModel {
 public:
  explicit LinearClassifier(const ImageTask& task = {});
  at::Tensor forward(at::Tensor images) override;
};

}  // namespace lockstep::models
