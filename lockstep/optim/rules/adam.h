#pragma once

// torch.optim.Adam and AdamW. With g the mean gradient, m and v as in moments.h:
//
//   g += weight_decay * w            (AdamW instead: w *= 1 - lr * weight_decay)
//   u  = amsgrad ? max(u, v) : v
//   w -= (lr / (1 - beta1^t) * m) / (sqrt(u) / sqrt(1 - beta2^t) + eps)

#include <cmath>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct AdamOptions {
  Option<double> lr = standard(1e-3);
  Option<Betas> betas = standard(Betas{0.9, 0.999});
  Option<double> eps = standard(1e-8);
  Option<double> weight_decay = standard(0.0);
  Option<bool> amsgrad = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &AdamOptions::lr},           Field{"betas", &AdamOptions::betas},
                      Field{"eps", &AdamOptions::eps},         Field{"weight_decay", &AdamOptions::weight_decay},
                      Field{"amsgrad", &AdamOptions::amsgrad}, Field{"maximize", &AdamOptions::maximize}};
  }
};

struct AdamWOptions {
  Option<double> lr = standard(1e-3);
  Option<Betas> betas = standard(Betas{0.9, 0.999});
  Option<double> eps = standard(1e-8);
  Option<double> weight_decay = standard(1e-2);
  Option<bool> amsgrad = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &AdamWOptions::lr},           Field{"betas", &AdamWOptions::betas},
                      Field{"eps", &AdamWOptions::eps},         Field{"weight_decay", &AdamWOptions::weight_decay},
                      Field{"amsgrad", &AdamWOptions::amsgrad}, Field{"maximize", &AdamWOptions::maximize}};
  }
};

struct AdamRule {
  float decoupled_decay = 1;  ///< AdamW: 1 - lr * weight_decay; Adam: 1
  float weight_decay = 0;     ///< Adam: L2 added to the gradient; AdamW: 0
  Lerp first_moment;
  MeanSquare second_moment;
  float bias_correction2_sqrt = 1;
  float eps = 0;
  float negative_step_size = 0;
  bool amsgrad = false;
  bool maximize = false;

  constexpr int arrays() const { return amsgrad ? 3 : 2; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (decoupled_decay != 1) w = w * V::all(decoupled_decay);
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    const V m = first_moment(state.get(0), g);
    V v = second_moment(state.get(1), g);
    state.set(0, m);
    state.set(1, v);
    if (amsgrad) {
      v = max(state.get(2), v);
      state.set(2, v);
    }
    const V denominator = sqrt(v) / V::all(bias_correction2_sqrt) + V::all(eps);
    return w + V::all(negative_step_size) * m / denominator;
  }
};

template <class Options>
requires(std::same_as<Options, AdamOptions> || std::same_as<Options, AdamWOptions>) void check(const Options& options) {
  require_not_negative("lr", options.lr);
  require_not_negative("weight_decay", options.weight_decay);
  check_betas(options.betas);
  require_not_negative("eps", options.eps);
}

template <class Options>
AdamRule adam_rule(const Options& options, std::uint64_t step) {
  const auto [beta1, beta2] = *options.betas;
  // In double and in Python's order: these scalars are rounded to float32 once.
  const double bias_correction1 = 1 - std::pow(beta1, double(step));
  const double bias_correction2 = 1 - std::pow(beta2, double(step));
  return {.first_moment = Lerp(1 - beta1),
          .second_moment = MeanSquare(beta2),
          .bias_correction2_sqrt = float(std::sqrt(bias_correction2)),
          .eps = float(options.eps),
          .negative_step_size = float(-(options.lr / bias_correction1)),
          .amsgrad = options.amsgrad,
          .maximize = options.maximize};
}

inline AdamRule rule_for(const AdamOptions& options, std::uint64_t step) {
  AdamRule rule = adam_rule(options, step);
  rule.weight_decay = float(options.weight_decay);
  return rule;
}

inline AdamRule rule_for(const AdamWOptions& options, std::uint64_t step) {
  AdamRule rule = adam_rule(options, step);
  rule.decoupled_decay = float(1 - options.lr * options.weight_decay);
  return rule;
}

using Adam = FusedOptimizer<AdamOptions>;
using AdamW = FusedOptimizer<AdamWOptions>;

}  // namespace lockstep::optim
