#pragma once

// Scales the loss so that small gradients do not vanish in float16, as Python's torch.amp.GradScaler.
//
//   lockstep::GradScaler scaler;
//   ddp.state().keep("scaler", scaler.kept());       // before the optimizer is made; found again after a restart
//   lockstep::optim::SGD optimizer(ddp, {.lr = 0.1});
//   ...
//   scaler.scale(loss).backward();
//   scaler.step(optimizer, {.max_norm = 1});         // a step with an overflow is committed, and updates nothing
//   scaler.update();
//
// With an optimizer of ours the overflow is decided on the reduced gradients, so all ranks decide alike, and the new
// scale is committed with the step: step() does what update() does in Python. With one of torch::optim, update() does
// it, and gradients are those that backward has averaged.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "lockstep/optim/optimizer.h"

namespace lockstep::amp {

/// PyTorch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;             ///< above 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< steps in a row without overflow, after which the scale grows
  bool enabled = true;                  ///< false: nothing is scaled or skipped
  double min_scale = 0;                 ///< as Apex's min_loss_scale
  double max_scale = std::numeric_limits<double>::infinity();  ///< as Apex's max_loss_scale
};

struct ScalerState {
  double scale = 0;
  std::int64_t growth_tracker = 0;  ///< steps in a row without overflow
};

/// The state behind a step. The scale is rounded to float32, as PyTorch's.
ScalerState next(ScalerState state, bool overflow, const GradScalerOptions& options);

/// Used by one thread at a time.
class GradScaler {
 public:
  /// UsageError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;  // memory of its own is kept
  GradScaler& operator=(const GradScaler&) = delete;

  /// loss * get_scale().
  at::Tensor scale(const at::Tensor& loss) const;

  /// What step() of an optimizer of ours is told of the scale. This must outlive the step.
  optim::LossScale loss_scale();

  /// One step of the optimizer with gradients divided by the scale, before clipping. Returns whether it updated: else a
  /// gradient was not finite.
  bool step(optim::Optimizer& optimizer, optim::StepOptions options = {});

  /// For an optimizer of torch::optim: divides the gradients, so that they can be clipped. Once per step.
  template <class TorchOptimizer>
  void unscale_(TorchOptimizer& optimizer) {
    if (!options_.enabled || found_) return;
    found_ = "";
    for (auto& group : optimizer.param_groups())
      for (const at::Tensor& parameter : group.params()) unscale_gradient(parameter);
  }
  /// unscale_() unless that was called, and a step when all gradients are finite. Returns whether there was one.
  template <class TorchOptimizer>
  requires requires(TorchOptimizer& optimizer) { optimizer.param_groups()[0].params(); }
  bool step(TorchOptimizer& optimizer) {
    unscale_(optimizer);
    const bool finite = !found_ || found_->empty();
    if (finite) optimizer.step();
    return finite;
  }

  /// Behind the step of an optimizer of torch::optim: the next scale. Behind one of ours there is nothing left to do.
  void update();

  /// Whether unscale_() has found a gradient that is not finite; nothing: it was not called since update().
  std::optional<bool> found_inf() const { return found_ ? std::optional(!found_->empty()) : std::nullopt; }

  bool is_enabled() const { return options_.enabled; }
  double get_scale() const { return options_.enabled ? state_.scale : 1; }
  /// The first parameter whose gradient was not finite in the last step; empty: all were. With an optimizer of
  /// torch::optim, which knows no names, "a parameter of sizes [...]".
  const std::string& overflowed() const { return overflowed_; }

  ScalerState state_dict() const { return state_; }
  /// UsageError when the scale is not finite and above 0.
  void load_state_dict(ScalerState state);

  /// What EngineState::keep() takes.
  std::span<std::byte> kept() { return std::as_writable_bytes(std::span(&state_, 1)); }

 private:
  void unscale_gradient(const at::Tensor& parameter);
  void decide(const std::string& overflowed);

  const GradScalerOptions options_;
  ScalerState state_;
  std::optional<std::string> found_;  ///< by unscale_(), until update()
  std::string overflowed_;
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::GradScaler;
using amp::GradScalerOptions;
}  // namespace lockstep
