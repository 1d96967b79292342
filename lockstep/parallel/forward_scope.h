#pragma once

// What holds around a forward pass through the wrapper, on this thread: autocast for the module's device, where inputs
// are, the memory format of pictures and of their gradients.

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/amp/autocast.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

class [[nodiscard]] ForwardScope {
 public:
  ForwardScope(const DataParallelOptions& options, at::Device device);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

  /// What the module gets: tensors on its device, where that is not the CPU, and pictures in the wanted memory format.
  at::Tensor input(at::Tensor tensor) const;
  /// What the caller gets: results of mixed precision in float32.
  at::Tensor output(at::Tensor tensor) const;

 private:
  const at::Device device_;
  const bool mixed_precision_;
  const bool channels_last_;
  std::optional<amp::Autocast> autocast_;  ///< none: the caller's own scope counts, if there is one
  bool channels_last_before_;              ///< of the scope around this one
};

}  // namespace lockstep::parallel
