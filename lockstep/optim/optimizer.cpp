#include "lockstep/optim/optimizer.h"

#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

void require(bool fine, const char* name, double value, const char* right) {
  if (fine) return;
  std::ostringstream text;
  text << "optimizer: " << name << " is " << value << ", must be " << right;
  throw UsageError(text.str());
}

void check_common(double lr, double weight_decay) {
  require(std::isfinite(lr) && lr >= 0, "lr", lr, "finite and at least 0");
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight_decay", weight_decay, "finite and at least 0");
}

template <class Options>
void check_adam(const Options& options) {
  check_common(options.lr, options.weight_decay);
  const auto [beta1, beta2] = options.betas;
  require(beta1 >= 0 && beta1 < 1, "betas[0]", beta1, "in [0, 1)");
  require(beta2 >= 0 && beta2 < 1, "betas[1]", beta2, "in [0, 1)");
  require(std::isfinite(options.eps) && options.eps >= 0, "eps", options.eps, "finite and at least 0");
}

template <class Options>
AdamRule adam_rule(const Options& options, std::uint64_t step) {
  const auto [beta1, beta2] = options.betas;
  // In double and in Python's order: these scalars are rounded to float32 once.
  const double bias_correction1 = 1 - std::pow(beta1, double(step));
  const double bias_correction2 = 1 - std::pow(beta2, double(step));
  const float lerp = float(1 - beta1);
  const bool from_gradient = lerp >= 0.5f;
  return {.lerp = from_gradient ? lerp - 1 : lerp,
          .lerp_from_gradient = from_gradient,
          .beta2 = float(beta2),
          .one_minus_beta2 = float(1 - beta2),
          .bias_correction2_sqrt = float(std::sqrt(bias_correction2)),
          .eps = float(options.eps),
          .negative_step_size = float(-(options.lr / bias_correction1))};
}

}  // namespace

void check(const SGDOptions& options) {
  check_common(options.lr, options.weight_decay);
  require(std::isfinite(options.momentum) && options.momentum >= 0, "momentum", options.momentum,
          "finite and at least 0");
  require(std::isfinite(options.dampening), "dampening", options.dampening, "finite");
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "momentum", options.momentum,
          "above 0, and dampening 0, for nesterov");
}
void check(const AdamOptions& options) { check_adam(options); }
void check(const AdamWOptions& options) { check_adam(options); }

void check(const StepOptions& options) {
  require(options.max_norm >= 0, "max_norm", options.max_norm, "at least 0 (0: no clipping)");
}

SGDRule rule_for(const SGDOptions& options, std::uint64_t step) {
  return {.negative_lr = float(-options.lr),
          .momentum = float(options.momentum),
          .gradient_weight = float(1 - options.dampening),
          .weight_decay = float(options.weight_decay),
          .nesterov = options.nesterov,
          .first = step == 1};
}

AdamRule rule_for(const AdamOptions& options, std::uint64_t step) {
  AdamRule rule = adam_rule(options, step);
  rule.weight_decay = float(options.weight_decay);
  return rule;
}

AdamRule rule_for(const AdamWOptions& options, std::uint64_t step) {
  AdamRule rule = adam_rule(options, step);
  rule.decoupled_decay = float(1 - options.lr * options.weight_decay);
  return rule;
}

int state_arrays(const SGDOptions& options) { return options.momentum != 0 ? 1 : 0; }
int state_arrays(const AdamOptions&) { return 2; }
int state_arrays(const AdamWOptions&) { return 2; }

}  // namespace lockstep::optim
