#pragma once

// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1); torch has none. With g the mean
// gradient:
//
//   w *= 1 - lr * weight_decay
//   w -= lr * sign(beta1 * m + (1 - beta1) * g)
//   m  = beta2 * m + (1 - beta2) * g
//
// The sign of what is no number is 0, as torch.sign's.

#include <array>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct LionOptions {
  Option<double> lr = standard(1e-4);
  Option<Betas> betas = standard(Betas{0.9, 0.99});  ///< of what is applied, and of what is kept
  Option<double> weight_decay = standard(0.0);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &LionOptions::lr}, Field{"betas", &LionOptions::betas},
                      Field{"weight_decay", &LionOptions::weight_decay}, Field{"maximize", &LionOptions::maximize}};
  }
};

struct LionRule {
  float decoupled_decay = 1;
  float negative_lr = 0;
  Lerp applied;
  Lerp kept;
  bool maximize = false;

  constexpr int arrays() const { return 1; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (decoupled_decay != 1) w = w * V::all(decoupled_decay);
    const V m = state.get(0);
    state.set(0, kept(m, g));
    return fma(sign(applied(m, g)), V::all(negative_lr), w);
  }
};

inline void check(const LionOptions& options) {
  require_not_negative("lr", options.lr);
  check_betas(options.betas);
  require_not_negative("weight_decay", options.weight_decay);
}

inline LionRule rule_for(const LionOptions& options, std::uint64_t) {
  const auto [beta1, beta2] = *options.betas;
  return {.decoupled_decay = float(1 - options.lr * options.weight_decay),
          .negative_lr = float(-options.lr),
          .applied = Lerp(1 - beta1),
          .kept = Lerp(1 - beta2),
          .maximize = options.maximize};
}

using Lion = FusedOptimizer<LionOptions>;

}  // namespace lockstep::optim
