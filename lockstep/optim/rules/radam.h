#pragma once

// torch.optim.RAdam. With g the mean gradient, m and v as in moments.h, t the step:
//
//   g += weight_decay * w            (decoupled_weight_decay instead: w *= 1 - lr * weight_decay)
//   rho_inf = 2 / (1 - beta2) - 1, rho = rho_inf - 2 * t * beta2^t / (1 - beta2^t)
//   w -= lr * m / (1 - beta1^t) * (rho > 5 ? sqrt(1 - beta2^t) / (sqrt(v) + eps) * rectification : 1)
//   rectification = sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))

#include <cmath>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct RAdamOptions {
  Option<double> lr = standard(1e-3);
  Option<Betas> betas = standard(Betas{0.9, 0.999});
  Option<double> eps = standard(1e-8);
  Option<double> weight_decay = standard(0.0);
  Option<bool> decoupled_weight_decay = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &RAdamOptions::lr},
                      Field{"betas", &RAdamOptions::betas},
                      Field{"eps", &RAdamOptions::eps},
                      Field{"weight_decay", &RAdamOptions::weight_decay},
                      Field{"decoupled_weight_decay", &RAdamOptions::decoupled_weight_decay},
                      Field{"maximize", &RAdamOptions::maximize}};
  }
};

struct RAdamRule {
  float decoupled_decay = 1;
  float weight_decay = 0;
  Lerp first_moment;
  MeanSquare second_moment;
  float bias_correction1 = 1;
  float bias_correction2_sqrt = 1;
  float rectification = 0;  ///< 0: the variance is not known well enough yet, the step is m's alone
  float eps = 0;
  float lr = 0;
  bool maximize = false;

  constexpr int arrays() const { return 2; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (decoupled_decay != 1) w = w * V::all(decoupled_decay);
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    const V m = first_moment(state.get(0), g);
    const V v = second_moment(state.get(1), g);
    state.set(0, m);
    state.set(1, v);
    V step = m / V::all(bias_correction1) * V::all(lr);
    if (rectification != 0) {
      // A number by a tensor is, in Python, its reciprocal times the number.
      step = step * (V::all(1) / (sqrt(v) + V::all(eps)) * V::all(bias_correction2_sqrt)) * V::all(rectification);
    }
    return w - step;
  }
};

inline void check(const RAdamOptions& options) {
  require_not_negative("lr", options.lr);
  check_betas(options.betas);
  require_not_negative("eps", options.eps);
  require_not_negative("weight_decay", options.weight_decay);
}

inline RAdamRule rule_for(const RAdamOptions& options, std::uint64_t step) {
  const auto [beta1, beta2] = *options.betas;
  const double bias_correction2 = 1 - std::pow(beta2, double(step));
  const double most = 2 / (1 - beta2) - 1;
  const double rho = most - 2 * double(step) * std::pow(beta2, double(step)) / bias_correction2;
  const bool decays = options.weight_decay != 0;
  const bool decoupled = options.decoupled_weight_decay;
  return {
      .decoupled_decay = decays && decoupled ? float(1 - options.lr * options.weight_decay) : 1,
      .weight_decay = decays && !decoupled ? float(options.weight_decay) : 0,
      .first_moment = Lerp(1 - beta1),
      .second_moment = MeanSquare(beta2),
      .bias_correction1 = float(1 - std::pow(beta1, double(step))),
      .bias_correction2_sqrt = float(std::sqrt(bias_correction2)),
      .rectification = rho > 5 ? float(std::sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))) : 0,
      .eps = float(options.eps),
      .lr = float(options.lr),
      .maximize = options.maximize};
}

using RAdam = FusedOptimizer<RAdamOptions>;

}  // namespace lockstep::optim
