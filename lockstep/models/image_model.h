#pragma once

// What the built-in models have in common.

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

namespace lockstep::models {

/// What a classifier is made for: pictures of one shape, and how many classes.
struct ImageTask {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;

  bool operator==(const ImageTask&) const = default;
};

/// A classifier of images: float [B, channels, height, width] to logits [B, classes].
/// Parameters and buffers bear the names of the PyTorch module; after torch::manual_seed(S)
/// a new model has the bits that Python's gets from the same seed.
///
/// The last layer may be replaced before the model is trained:
///
///   model->replace_module("fc", torch::nn::Linear(512, 5));
class ImageModel : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(at::Tensor images) = 0;

 protected:
  /// What the layer that is registered as `name` makes of x; a member of the model would not follow replace_module().
  /// UsageError unless it is a Linear or a Sequential.
  at::Tensor through(const std::string& name, const at::Tensor& x) const;
};

/// The name of the layer that makes the logits ("fc", "classifier.6"): of the Linears the one registered last.
std::string last_layer(const ImageModel& model);

}  // namespace lockstep::models
