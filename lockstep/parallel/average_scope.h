#pragma once

// While it lives, the module's parameters and buffers are their running averages, on this rank.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "lockstep/parallel/fused_state.h"

namespace lockstep::parallel {

class AverageScope {
 public:
  /// UsageError when there is one already.
  explicit AverageScope(FusedState& fused);
  ~AverageScope();
  AverageScope(const AverageScope&) = delete;
  AverageScope& operator=(const AverageScope&) = delete;

 private:
  FusedState& fused_;
  std::vector<at::Tensor> weights_;  ///< that share the parameters' own memory
  std::vector<std::byte> buffers_;
};

}  // namespace lockstep::parallel
