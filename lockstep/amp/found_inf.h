#pragma once

// What a device tells an optimizer of itself, without the host.

#include <ATen/core/Tensor.h>

#include <concepts>
#include <utility>

namespace lockstep::amp {

/// An optimizer that leaves a step out by the word of the device: Python's `optimizer.found_inf`.
struct TakesFoundInf {
  /// One float32 number, of no dimensions, where the gradients are; 1: step() changes nothing. Undefined, or 0: it is a
  /// step. Holds until it is set anew; a GradScaler sets it for the length of a step.
  at::Tensor found_inf = {};
};

template <class Optimizer>
concept SkipsOnDevice = std::derived_from<Optimizer, TakesFoundInf>;

/// Sets an optimizer's found_inf for its own lifetime.
class [[nodiscard]] WithFoundInf {
 public:
  WithFoundInf(TakesFoundInf& optimizer, at::Tensor found_inf)
      : optimizer_(optimizer), before_(std::exchange(optimizer.found_inf, std::move(found_inf))) {}
  ~WithFoundInf() { optimizer_.found_inf = before_; }
  WithFoundInf(const WithFoundInf&) = delete;
  WithFoundInf& operator=(const WithFoundInf&) = delete;

 private:
  TakesFoundInf& optimizer_;
  at::Tensor before_;
};

/// Whether a step was made. Where a device has decided it, it is asked when this is: then the host waits.
class Stepped {
 public:
  Stepped(bool made) : made_(made) {}
  explicit Stepped(at::Tensor found_inf) : found_inf_(std::move(found_inf)) {}
  operator bool() const { return found_inf_.defined() ? found_inf_.item<float>() == 0 : made_; }

 private:
  bool made_ = false;
  at::Tensor found_inf_;
};

}  // namespace lockstep::amp
