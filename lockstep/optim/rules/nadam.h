#pragma once

// torch.optim.NAdam. With g the mean gradient, m and v as in moments.h, t the step:
//
//   g += weight_decay * w            (decoupled_weight_decay instead: w *= 1 - lr * weight_decay)
//   mu(t) = beta1 * (1 - 0.5 * 0.96^(t * momentum_decay)), M(t) = mu(1) * ... * mu(t)
//   d  = sqrt(v / (1 - beta2^t)) + eps
//   w -= lr * (1 - mu(t)) / (1 - M(t)) * g / d
//   w -= lr * mu(t + 1) / (1 - M(t) * mu(t + 1)) * m / d
//
// M(t) is a function of t, no state: where beta1 or momentum_decay change between steps, it is what it would be if they
// had always been what they are now. Python multiplies what they were.

#include <cmath>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct NAdamOptions {
  Option<double> lr = standard(2e-3);
  Option<Betas> betas = standard(Betas{0.9, 0.999});
  Option<double> eps = standard(1e-8);
  Option<double> weight_decay = standard(0.0);
  Option<double> momentum_decay = standard(4e-3);
  Option<bool> decoupled_weight_decay = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &NAdamOptions::lr},
                      Field{"betas", &NAdamOptions::betas},
                      Field{"eps", &NAdamOptions::eps},
                      Field{"weight_decay", &NAdamOptions::weight_decay},
                      Field{"momentum_decay", &NAdamOptions::momentum_decay},
                      Field{"decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay},
                      Field{"maximize", &NAdamOptions::maximize}};
  }
};

struct NAdamRule {
  float decoupled_decay = 1;
  float weight_decay = 0;
  Lerp first_moment;
  MeanSquare second_moment;
  float bias_correction2 = 1;
  float eps = 0;
  float negative_gradient_step = 0;
  float negative_moment_step = 0;
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
    const V d = sqrt(v / V::all(bias_correction2)) + V::all(eps);
    w = w + V::all(negative_gradient_step) * g / d;
    return w + V::all(negative_moment_step) * m / d;
  }
};

inline void check(const NAdamOptions& options) {
  require_not_negative("lr", options.lr);
  check_betas(options.betas);
  require_not_negative("eps", options.eps);
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("momentum_decay", options.momentum_decay);
}

inline NAdamRule rule_for(const NAdamOptions& options, std::uint64_t step) {
  const auto [beta1, beta2] = *options.betas;
  const auto mu = [&, beta1 = beta1](std::uint64_t t) {
    return beta1 * (1 - 0.5 * std::pow(0.96, double(t) * options.momentum_decay));
  };
  // In float32, as Python's tensor, and until it no longer counts beside 1: it may stay a subnormal number for ever.
  float product = 1;
  for (std::uint64_t t = 1; t <= step && 1 - double(product) != 1; ++t) product *= float(mu(t));
  const double next = mu(step + 1);
  const bool decays = options.weight_decay != 0;
  const bool decoupled = options.decoupled_weight_decay;
  return {.decoupled_decay = decays && decoupled ? float(1 - options.lr * options.weight_decay) : 1,
          .weight_decay = decays && !decoupled ? float(options.weight_decay) : 0,
          .first_moment = Lerp(1 - beta1),
          .second_moment = MeanSquare(beta2),
          .bias_correction2 = float(1 - std::pow(beta2, double(step))),
          .eps = float(options.eps),
          .negative_gradient_step = float(-options.lr * (1 - mu(step)) / (1 - double(product))),
          .negative_moment_step = float(-options.lr * next / (1 - double(product) * next)),
          .maximize = options.maximize};
}

using NAdam = FusedOptimizer<NAdamOptions>;

}  // namespace lockstep::optim
