#include "lockstep/amp/loss_scalers.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

// What GradScaler::unscale_() looks at of an optimizer.
struct AsOptimizer {
  struct Group {
    const std::vector<at::Tensor>& all;
    const std::vector<at::Tensor>& params() const { return all; }
  };
  std::vector<Group> groups;
  std::vector<Group>& param_groups() { return groups; }
};

}  // namespace

LossScalers::LossScalers(std::vector<at::Tensor> parameters, int num_losses, const GradScalerOptions& options)
    : parameters_(std::move(parameters)) {
  if (num_losses < 1) throw UsageError("num_losses is " + std::to_string(num_losses) + ", must be at least 1");
  for (int i = 0; i < num_losses; ++i) scalers_.push_back(std::make_unique<GradScaler>(options));
}

GradScaler& LossScalers::scaler(int loss_id) {
  if (loss_id < 0 || loss_id >= num_losses())
    throw UsageError("loss_id is " + std::to_string(loss_id) + ", must be from 0 to " +
                     std::to_string(num_losses() - 1));
  return *scalers_[std::size_t(loss_id)];
}

// Gradients of this loss alone are unscaled, so those of the others are put aside; in memory of their own, for what
// averages gradients may go on to use its own.
void LossScalers::backward(const at::Tensor& loss, int loss_id) {
  GradScaler& own = scaler(loss_id);
  if (own.found_inf())
    throw UsageError("loss_id " + std::to_string(loss_id) +
                     " had its backward in this step; call update() behind step()");
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : parameters_) {
    before.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    parameter.mutable_grad() = at::Tensor();
  }
  own.scale(loss).backward();
  AsOptimizer all;
  all.groups.push_back({parameters_});
  own.unscale_(all);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!before[i].defined()) continue;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.defined())
      gradient.add_(before[i]);
    else
      gradient = before[i];
  }
}

bool LossScalers::step(torch::optim::Optimizer& optimizer) {
  const bool finite = std::none_of(scalers_.begin(), scalers_.end(),
                                   [](const auto& scaler) { return scaler->found_inf().value_or(false); });
  if (finite) optimizer.step();
  return finite;
}

void LossScalers::update() {
  for (const auto& scaler : scalers_) scaler->update();
}

}  // namespace lockstep::amp
