#pragma once

// A transformer's encoder as a user of libtorch writes it today; benchmarks/peer/encoder.py is the same for Python.

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

#include "lockstep/models/image_model.h"
#include "lockstep/models/layers.h"

namespace lockstep::bench {

/// Of a sample, and of a token.
inline constexpr std::int64_t kTokens = 256, kWidth = 512;

/// Vaswani et al., "Attention Is All You Need": layers of 8 heads and 2048 hidden units, which normalise last. Without
/// dropout, whose random numbers would differ. `forward`: float [B, tokens, kWidth] to the logits [B, classes] of the
/// mean token.
class Encoder : public models::ImageModel {
 public:
  Encoder(int layers, std::int64_t classes);
  at::Tensor forward(at::Tensor samples) override;

 private:
  models::Row layers_;
  torch::nn::Linear last_{nullptr};
};

}  // namespace lockstep::bench
