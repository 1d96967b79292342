#include "lockstep/amp/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>

namespace lockstep::amp {
namespace {

void check(const GradScalerOptions& options) {
  const auto above = [](const char* name, double value, double least) {
    optim::require(std::isfinite(value) && value > least, name, value, least == 0 ? "finite and above 0" : "above 1");
  };
  above("init_scale", options.init_scale, 0);
  above("growth_factor", options.growth_factor, 1);
  optim::require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
                 "in (0, 1)");
  optim::require(options.growth_interval > 0, "growth_interval", double(options.growth_interval), "at least 1");
  optim::require(options.min_scale >= 0 && options.min_scale <= options.max_scale, "min_scale", options.min_scale,
                 "at least 0, and at most max_scale");
}

}  // namespace

ScalerState next(ScalerState state, bool overflow, const GradScalerOptions& options) {
  const auto within = [&](double scale) { return std::clamp(scale, options.min_scale, options.max_scale); };
  if (overflow) return {.scale = within(float(state.scale * options.backoff_factor))};
  if (++state.growth_tracker < options.growth_interval) return state;
  const float grown = float(state.scale * options.growth_factor);
  return {.scale = std::isfinite(grown) ? within(grown) : state.scale};
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), state_{.scale = options.init_scale} {
  check(options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return options_.enabled ? loss * state_.scale : loss; }

optim::LossScale GradScaler::loss_scale() {
  return {.scale = state_.scale, .decided = [this](const std::string& name) { decide(name); }};
}

bool GradScaler::step(optim::Optimizer& optimizer, optim::StepOptions options) {
  overflowed_.clear();
  if (options_.enabled) options.loss_scale = loss_scale();
  optimizer.step(options);
  return overflowed_.empty();
}

void GradScaler::update() {
  if (found_) decide(*found_);
  found_.reset();
}

void GradScaler::load_state_dict(ScalerState state) {
  optim::require(std::isfinite(state.scale) && state.scale > 0, "scale", state.scale, "finite and above 0");
  state_ = state;
}

void GradScaler::unscale_gradient(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor gradient = parameter.grad();
  if (!gradient.defined()) return;
  gradient.mul_(1 / state_.scale);
  if (found_->empty() && !at::isfinite(gradient).all().item<bool>())
    found_ = "a parameter of sizes " + c10::str(parameter.sizes());
}

void GradScaler::decide(const std::string& overflowed) {
  overflowed_ = overflowed;
  state_ = next(state_, !overflowed.empty(), options_);
}

}  // namespace lockstep::amp
