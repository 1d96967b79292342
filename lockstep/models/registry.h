#pragma once

// The built-in models by name.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// The names make_model knows: mlp, mlp_dropout (p = 0.5), convnet, torchvision's resnet18 … resnet152, and
/// resnet18_cifar, whose stem is for pictures of 32x32.
std::vector<std::string> model_names();

/// A new model for `task`, its weights drawn from torch's default generator. UsageError with the nearest
/// valid name when `name` is unknown.
std::shared_ptr<ImageModel> make_model(const std::string& name, const ImageTask& task = {});

}  // namespace lockstep::models
