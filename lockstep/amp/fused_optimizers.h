#pragma once

// torch::optim's SGD, Adam and AdamW with one kernel for many parameters, where those of libtorch start several for
// each: Python's optimizers with fused=True, Apex's FusedSGD and FusedAdam. Options, groups, state, save() and load()
// are those of the class behind each; so schedulers, GradScaler, DistributedDataParallel and lockstep::checkpoint take
// them as well.
//
//   lockstep::FusedAdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
//
// On a device nothing of a step waits for it. Weights differ from the unfused ones by rounding. An optimizer of
// lockstep::optim is for models whose state the ranks of a node share; these are for all others.
//
// `found_inf` (found_inf.h) leaves a step out on the device; so the device counts the steps of Adam, and the states'
// `step` counts what was left out, too, until settle_steps(). With a `found_inf` the host waits for those steps of
// FusedSGD in which a momentum begins.
//
// Parameters of float types on the CPU or a CUDA device; FusedSGD takes none of 16 bits on the CPU. step() throws
// UsageError, before anything is written, for those, for a parameter with gaps in its memory, and for a gradient that
// is sparse, or of another dtype or device than its parameter. Used by one thread at a time.

#include <ATen/core/Tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <unordered_map>

#include "lockstep/amp/found_inf.h"

namespace lockstep::amp {

class FusedSGD : public torch::optim::SGD, public TakesFoundInf {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override;
};

namespace detail {

/// What Adam's kernels want of the number of a parameter's steps: a tensor beside it. The number in the state says what
/// it is, so that one that was loaded counts.
class StepTensors {
 public:
  /// A float tensor that is `before`, the steps that `parameter` has had.
  at::Tensor at(const at::Tensor& parameter, std::int64_t before);
  /// It is about to be added 1 to; what throws until advanced() makes it unknown.
  void begin(const at::Tensor& parameter);
  /// `steps`: what the state says now. `perhaps`: the device may have left the last one out.
  void advanced(const at::Tensor& parameter, std::int64_t steps, bool perhaps);
  /// The steps that the device has made of those that the state says. Waits for it where the two may differ.
  std::int64_t made(const c10::TensorImpl* parameter, std::int64_t steps);

 private:
  struct Count {
    at::Tensor tensor;
    std::int64_t steps = -1;  ///< what the state says
    bool ahead = false;       ///< and the tensor may be behind it
  };
  std::unordered_map<const c10::TensorImpl*, Count> counts_;
};

}  // namespace detail

class FusedAdam : public torch::optim::Adam, public TakesFoundInf {
 public:
  using Adam::Adam;
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  friend void settle_steps(const torch::optim::Optimizer& optimizer);
  mutable detail::StepTensors steps_;  ///< of a const optimizer the states are settled, too
};

class FusedAdamW : public torch::optim::AdamW, public TakesFoundInf {
 public:
  using AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  friend void settle_steps(const torch::optim::Optimizer& optimizer);
  mutable detail::StepTensors steps_;
};

/// Makes `step` in the states of a FusedAdam or FusedAdamW the number of steps that the device has made; of other
/// optimizers nothing. For who reads or sets states by state(); save(), load() and lockstep::checkpoint do it. Waits
/// for the device where steps had a `found_inf`.
void settle_steps(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep::amp

namespace lockstep {
using amp::FusedAdam;
using amp::FusedAdamW;
using amp::FusedSGD;
}  // namespace lockstep
