#pragma once

// A scale for each of several losses, as Apex's amp.initialize(num_losses=...) and amp.scale_loss(..., loss_id=...):
//
//   lockstep::LossScalers scalers(model->parameters(), 2);
//   scalers.backward(first_loss, 0);
//   scalers.backward(second_loss, 1);
//   scalers.step(optimizer);
//   scalers.update();
//
// For an optimizer of torch::optim. One of ours adds up what backward leaves, before it is known which loss that is of:
// there all losses have one scale, of one GradScaler.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "lockstep/amp/grad_scaler.h"

namespace torch::optim {
class Optimizer;
}

namespace lockstep::amp {

/// Used by one thread at a time.
class LossScalers {
 public:
  /// Of the parameters that the losses train. UsageError for fewer losses than one, and for options out of range.
  LossScalers(std::vector<at::Tensor> parameters, int num_losses, const GradScalerOptions& options = {});

  /// The gradients of `loss`, which is scaled by the scale of `loss_id` for the length of backward, are added to
  /// .grad(). Takes a copy of the gradients that are there. UsageError for a `loss_id` out of range, and for one that
  /// had its backward since update().
  void backward(const at::Tensor& loss, int loss_id);

  /// A step when all gradients of all losses were finite. Returns whether there was one.
  bool step(torch::optim::Optimizer& optimizer);
  /// The next scale of each loss that had a backward.
  void update();

  int num_losses() const { return int(scalers_.size()); }
  /// Of a loss, for its scale and its state. UsageError for a `loss_id` out of range.
  GradScaler& scaler(int loss_id);

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<std::unique_ptr<GradScaler>> scalers_;  ///< by loss_id
};

}  // namespace lockstep::amp

namespace lockstep {
using amp::LossScalers;
}  // namespace lockstep
