#pragma once

// The kinds of pooling that are fused.

namespace lockstep::nn {

/// A square window that moves over pictures; what lies outside of them does not count.
enum class Pooling {
  halving,  ///< 2x2, stride 2
  stem,     ///< 3x3, stride 2, padding 1, as in the stem of a ResNet
};

}  // namespace lockstep::nn
