#pragma once

// What the built-in models have in common.

#include <torch/nn/module.h>

#include <cstdint>

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
class ImageModel : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(at::Tensor images) = 0;
};

}  // namespace lockstep::models
