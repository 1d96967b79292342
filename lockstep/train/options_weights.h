#pragma once

// torchvision's names of published weights, and the files in which it keeps them. Without libtorch; pure functions.

#include <functional>
#include <string>
#include <vector>

namespace lockstep::train {

/// One that torchvision publishes: "ResNet34_Weights.IMAGENET1K_V1".
struct PublishedWeights {
  std::string model;       ///< of ours, "resnet34"
  std::string of;          ///< what torchvision calls the weights of that model, "ResNet34_Weights"
  std::string name;        ///< "IMAGENET1K_V1"
  std::string file;        ///< "resnet34-b627a593.pth"
  bool is_default = true;  ///< what DEFAULT stands for
};

/// All of our models.
const std::vector<PublishedWeights>& published_weights();

/// Whether a value of --weights is such a name, known or not, and no file's.
bool is_published_name(const std::string& weights);

/// The file that torchvision keeps the weights `name` in: below $TORCH_HOME, torch in $XDG_CACHE_HOME, or .cache/torch
/// in $HOME. It need not be there. UsageError for a name that there is not, or that is another model's. `variable` as
/// getenv.
std::string file_of_published(const std::string& name, const std::string& model,
                              const std::function<const char*(const char*)>& variable);

}  // namespace lockstep::train
