#include "lockstep/amp/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

double rounded(double scale) { return float(scale); }

void check(const GradScalerOptions& options) {
  optim::require(std::isfinite(options.growth_factor) && options.growth_factor > 1, "growth_factor",
                 options.growth_factor, "finite and above 1");
  optim::require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", options.backoff_factor,
                 "in (0, 1)");
  optim::require(options.growth_interval > 0, "growth_interval", double(options.growth_interval), "at least 1");
  optim::require(options.min_scale >= 0 && options.min_scale <= options.max_scale, "min_scale", options.min_scale,
                 "at least 0, and at most max_scale");
  const double first = rounded(options.init_scale);
  optim::require(std::isfinite(first) && first > 0, "init_scale", options.init_scale, "a float32, finite and above 0");
  optim::require(options.init_scale >= options.min_scale && options.init_scale <= options.max_scale, "init_scale",
                 options.init_scale, "from min_scale to max_scale");
}

// CUDA's kernel takes no bfloat16.
bool can_be_unscaled_there(const at::Tensor& gradient) {
  const at::ScalarType dtype = gradient.scalar_type();
  return !gradient.is_cpu() && gradient.layout() == at::kStrided &&
         (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kDouble);
}

// The device of all gradients, for whose optimizer it may decide; none: the host does.
std::optional<at::Device> device_of_gradients(const std::vector<at::Tensor>& parameters) {
  std::optional<at::Device> device;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!can_be_unscaled_there(gradient)) return std::nullopt;
    if (device && *device != gradient.device()) return std::nullopt;
    device = gradient.device();
  }
  return device;
}

std::string a_gradient_on(at::Device device) { return "a gradient on " + device.str(); }

}  // namespace

ScalerState next(ScalerState state, bool overflow, const GradScalerOptions& options) {
  const auto within = [&](double scale) { return rounded(std::clamp(scale, options.min_scale, options.max_scale)); };
  if (overflow) return {.scale = within(float(state.scale * options.backoff_factor))};
  if (++state.growth_tracker < options.growth_interval) return state;
  const float grown = float(state.scale * options.growth_factor);
  return {.scale = std::isfinite(grown) ? within(grown) : state.scale};
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), state_{.scale = rounded(options.init_scale)} {
  check(options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  if (!options_.enabled) return loss;
  return there_ && loss.device() == there_->device() ? there_->scale(loss) : loss * get_scale();
}

optim::LossScale GradScaler::loss_scale() {
  update();
  come_back();
  return {.scale = state_.scale, .decided = [this](const std::string& name) {
            decide(nullptr, name);
            update();
          }};
}

bool GradScaler::step(optim::Optimizer& optimizer, optim::StepOptions options) {
  if (!options_.enabled) {
    optimizer.step(options);
    return true;
  }
  come_back();
  if (saw(&optimizer) != nullptr) throw UsageError("GradScaler: step() of this optimizer again before update()");
  options.loss_scale = {.scale = get_scale(), .decided = [&](const std::string& name) { decide(&optimizer, name); }};
  optimizer.step(options);
  return seen_.back().overflowed.empty();
}

// What optimizers of ours have decided so far is in the state already.
void GradScaler::update() {
  if (there_) {
    std::vector<at::Tensor> found_infs;
    for (const Seen& seen : seen_)
      if (seen.found_inf.defined()) found_infs.push_back(seen.found_inf);
    if (!found_infs.empty()) there_->update(found_infs, options_);
  } else if (!seen_.empty()) {
    state_ = next(before(), !first_overflow().empty(), options_);
  }
  before_.reset();
  seen_.clear();
}

void GradScaler::load_state_dict(ScalerState state) {
  optim::require(std::isfinite(state.scale) && state.scale > 0, "scale", state.scale, "finite and above 0");
  state_ = state;
  before_.reset();
  seen_.clear();
  there_.reset();
}

GradScaler::Seen* GradScaler::saw(const void* optimizer) {
  const auto found = std::ranges::find(seen_, optimizer, &Seen::optimizer);
  return found == seen_.end() ? nullptr : &*found;
}

GradScaler::Seen& GradScaler::begin_unscale(const void* optimizer) {
  if (const Seen* const seen = saw(optimizer))
    throw UsageError(seen->stepped ? "GradScaler: unscale_() of an optimizer behind its step(); update() comes first"
                                   : "GradScaler: unscale_() of this optimizer again before update()");
  return seen_.emplace_back(Seen{optimizer});
}

void GradScaler::unscale_gradient(const at::Tensor& parameter, Seen& seen) {
  const at::NoGradGuard no_grad;
  const at::Tensor gradient = parameter.grad();
  if (!gradient.defined() || !seen.unscaled.insert(gradient.unsafeGetTensorImpl()).second) return;
  gradient.mul_(1 / get_scale());
  if (!seen.overflowed.empty() || at::isfinite(gradient).all().item<bool>()) return;
  seen.overflowed = "a parameter of sizes " + c10::str(parameter.sizes());
}

// Returns whether the device has it.
bool GradScaler::unscale_there(const std::vector<at::Tensor>& parameters, Seen& seen) {
  const std::optional<at::Device> device = device_of_gradients(parameters);
  if (is_kept_ || !device) return false;
  if (there_ ? there_->device() != *device : seen_.size() > 1) return false;  // all of a round are on one side
  if (!there_) there_.emplace(state_, options_, *device);
  seen.found_inf = there_->unscale_(parameters);
  return true;
}

GradScaler::Seen& GradScaler::mark_stepped(const void* optimizer) {
  Seen& seen = *saw(optimizer);
  if (seen.stepped) throw UsageError("GradScaler: step() of this optimizer again before update()");
  seen.stepped = true;
  return seen;
}

// What the optimizer is told; undefined: the host decides.
at::Tensor GradScaler::begin_step_there(const void* optimizer) {
  if (!there_ || !saw(optimizer)->found_inf.defined()) return {};
  return mark_stepped(optimizer).found_inf;
}

// To the host, with what the device has found so far.
void GradScaler::come_back() {
  if (!there_) return;
  overflowed_ = overflowed();
  for (Seen& seen : seen_) {
    if (seen.found_inf.defined() && seen.found_inf.item<float>() != 0)
      seen.overflowed = a_gradient_on(seen.found_inf.device());
    seen.found_inf = at::Tensor();
  }
  state_ = there_->read();
  there_.reset();
}

// Of an optimizer of torch::optim. Returns whether it is to update.
bool GradScaler::begin_step(const void* optimizer) {
  if (!options_.enabled) return true;
  come_back();
  const Seen& seen = mark_stepped(optimizer);
  overflowed_ = first_overflow();
  return seen.overflowed.empty();
}

// Of one of ours, between its reduction and its commit: the scale of the next round is to be committed with it.
void GradScaler::decide(const void* optimizer, const std::string& overflowed) {
  before_ = before();
  seen_.push_back({optimizer, true, overflowed});
  overflowed_ = first_overflow();
  state_ = next(*before_, !overflowed_.empty(), options_);
}

std::string GradScaler::overflowed() const {
  if (!there_) return overflowed_;
  if (!seen_.empty()) return first_overflow();
  return there_->overflowed() ? a_gradient_on(there_->device()) : "";
}

std::string GradScaler::first_overflow() const {
  for (const Seen& seen : seen_) {
    if (!seen.overflowed.empty()) return seen.overflowed;
    if (seen.found_inf.defined() && seen.found_inf.item<float>() != 0) return a_gradient_on(seen.found_inf.device());
  }
  return "";
}

}  // namespace lockstep::amp
