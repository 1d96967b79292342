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
// With an optimizer of ours the overflow is decided on the reduced gradients, so all ranks decide alike, and the scale
// of the next round is committed with the step; update() begins that round. With one of torch::optim, update() decides
// the next scale, and gradients are those that backward has averaged.
//
// A program may step several optimizers before update(), as with GANs: from the first of them on the scale stands still
// until update(), each optimizer is skipped for gradients of its own, and the scale falls when any was. Of models that
// keep the scaler's bytes in their state, the one that steps last is to have them.
//
// With a FusedSGD, FusedAdam or FusedAdamW whose gradients are all on one device, and none is a bfloat16, scale and
// overflows stay there: the device leaves steps out and sets the next scale, and the host waits only when it asks, by
// get_scale(), found_inf(), overflowed(), state_dict() or what step() returns. All is decided on the host, as for other
// optimizers, from kept() on, for the bytes are the host's, and from where another kind of optimizer, or one on another
// device, comes until update().

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "lockstep/amp/device_scale.h"
#include "lockstep/amp/found_inf.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::amp {

/// PyTorch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;            ///< from min_scale to max_scale; rounded to float32
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

  /// What step() of an optimizer of ours is told of the scale, where it is the only one between two calls of update(),
  /// which this calls. This must outlive the step.
  optim::LossScale loss_scale();

  /// One step of the optimizer with gradients divided by the scale, before clipping. Returns whether it updated: else a
  /// gradient was not finite. UsageError for an optimizer that has stepped since update().
  bool step(optim::Optimizer& optimizer, optim::StepOptions options = {});

  /// For an optimizer of torch::optim: divides the gradients, so that they can be clipped. UsageError for one that has
  /// had this, or a step, since update().
  template <class TorchOptimizer>
  void unscale_(TorchOptimizer& optimizer) {
    if (!options_.enabled) return;
    auto&& groups = optimizer.param_groups();  // first, for it may refuse
    Seen& seen = begin_unscale(&optimizer);
    if constexpr (SkipsOnDevice<TorchOptimizer>) {
      std::vector<at::Tensor> parameters;
      for (auto& group : groups) parameters.insert(parameters.end(), group.params().begin(), group.params().end());
      if (unscale_there(parameters, seen)) return;
    }
    come_back();
    for (auto& group : groups)
      for (const at::Tensor& parameter : group.params()) unscale_gradient(parameter, seen);
  }
  /// unscale_() unless that was called, and a step when all its gradients are finite. Returns whether there was one.
  /// UsageError for an optimizer that has stepped since update().
  template <class TorchOptimizer>
  requires requires(TorchOptimizer& optimizer) { optimizer.param_groups()[0].params(); }
  std::conditional_t<SkipsOnDevice<TorchOptimizer>, Stepped, bool> step(TorchOptimizer& optimizer) {
    if (options_.enabled && !saw(&optimizer)) unscale_(optimizer);
    if constexpr (SkipsOnDevice<TorchOptimizer>) {
      if (const at::Tensor found_inf = begin_step_there(&optimizer); found_inf.defined()) {
        const WithFoundInf told(optimizer, found_inf);
        optimizer.step();
        return Stepped(found_inf);
      }
    }
    const bool finite = begin_step(&optimizer);
    if (finite) optimizer.step();
    return finite;
  }

  /// Behind the steps of all optimizers: the next scale.
  void update();

  /// Whether any optimizer had a gradient that is not finite; nothing: none was looked at since update().
  std::optional<bool> found_inf() const {
    return seen_.empty() ? std::nullopt : std::optional(!first_overflow().empty());
  }

  bool is_enabled() const { return options_.enabled; }
  /// The same from the first optimizer's step until update().
  double get_scale() const { return options_.enabled ? (there_ ? there_->read() : before()).scale : 1; }
  /// The first parameter whose gradient was not finite, of the optimizers since update(), or of those before it while
  /// there are none; empty: all were. With an optimizer of torch::optim, which knows no names, "a parameter of sizes
  /// [...]", where the device decides "a gradient on cuda:0".
  std::string overflowed() const;

  ScalerState state_dict() const { return there_ ? there_->read() : state_; }
  /// UsageError when the scale is not finite and above 0.
  void load_state_dict(ScalerState state);

  /// What EngineState::keep() takes.
  std::span<std::byte> kept() {
    come_back();
    is_kept_ = true;
    return std::as_writable_bytes(std::span(&state_, 1));
  }

 private:
  /// An optimizer since update().
  struct Seen {
    const void* optimizer;
    bool stepped = false;
    std::string overflowed;                                    ///< the first of its parameters; empty: none
    std::unordered_set<const c10::TensorImpl*> unscaled = {};  ///< gradients: a tied parameter comes several times
    at::Tensor found_inf = {};                                 ///< in place of the two: the device knows
  };
  Seen* saw(const void* optimizer);
  Seen& begin_unscale(const void* optimizer);
  void unscale_gradient(const at::Tensor& parameter, Seen& seen);
  bool unscale_there(const std::vector<at::Tensor>& parameters, Seen& seen);
  Seen& mark_stepped(const void* optimizer);
  bool begin_step(const void* optimizer);
  at::Tensor begin_step_there(const void* optimizer);
  void come_back();
  void decide(const void* optimizer, const std::string& overflowed);
  std::string first_overflow() const;
  const ScalerState& before() const { return before_ ? *before_ : state_; }

  const GradScalerOptions options_;
  ScalerState state_;                  ///< behind what has stepped so far
  std::optional<ScalerState> before_;  ///< what it was at the last update(), once an optimizer of ours has stepped
  std::vector<Seen> seen_;             ///< in the order in which they came
  std::string overflowed_;
  std::optional<DeviceScale> there_;  ///< has the state in place of state_, and each of seen_ a found_inf
  bool is_kept_ = false;              ///< somebody has the bytes of state_
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::GradScaler;
using amp::GradScalerOptions;
}  // namespace lockstep
