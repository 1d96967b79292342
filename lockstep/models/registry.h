#pragma once

// The built-in models by name.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/image_model.h"

namespace lockstep::models {

/// The names make_model knows: mlp, mlp_dropout (p = 0.5), convnet.
std::vector<std::string> model_names();

/// A new model, its weights drawn from torch's default generator. UsageError with the nearest
/// valid name when `name` is unknown.
std::shared_ptr<ImageModel> make_model(const std::string& name);

}  // namespace lockstep::models
