#pragma once

// What a device tells an optimizer of itself, without the host.

#include <ATen/core/Tensor.h>

#include <concepts>

namespace lockstep::amp {

/// An optimizer that leaves a step out by the word of the device: Python's `optimizer.found_inf`.
struct TakesFoundInf {
  /// One float32 number, of no dimensions, where the gradients are; 1: step() changes nothing. Undefined, or 0: it is a
  /// step. Holds until it is set anew; a GradScaler sets it for the length of a step.
  at::Tensor found_inf = {};
};

template <class Optimizer>
concept SkipsOnDevice = std::derived_from<Optimizer, TakesFoundInf>;

}  // namespace lockstep::amp
