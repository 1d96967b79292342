#pragma once

// torch.optim.RMSprop. With g the mean gradient:
//
//   g += weight_decay * w
//   v  = alpha * v + (1 - alpha) * g * g
//   a  = (1 - alpha) * (g - a) + a                          (only if centered)
//   d  = sqrt(centered ? v - a * a : v) + eps
//   b  = momentum * b + g / d                               (only if momentum > 0)
//   w -= lr * (momentum > 0 ? b : g / d)
//
// State: v, then a and b as far as they are needed.

#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct RMSpropOptions {
  Option<double> lr = standard(1e-2);
  Option<double> alpha = standard(0.99);
  Option<double> eps = standard(1e-8);
  Option<double> weight_decay = standard(0.0);
  Option<double> momentum = standard(0.0);
  Option<bool> centered = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &RMSpropOptions::lr},
                      Field{"alpha", &RMSpropOptions::alpha},
                      Field{"eps", &RMSpropOptions::eps},
                      Field{"weight_decay", &RMSpropOptions::weight_decay},
                      Field{"momentum", &RMSpropOptions::momentum},
                      Field{"centered", &RMSpropOptions::centered},
                      Field{"maximize", &RMSpropOptions::maximize}};
  }
};

struct RMSpropRule {
  float negative_lr = 0;
  MeanSquare square;
  Lerp average;
  float eps = 0;
  float weight_decay = 0;
  float momentum = 0;
  bool centered = false;
  bool maximize = false;

  constexpr int arrays() const { return 1 + int(centered) + int(momentum != 0); }
  constexpr int layout() const { return int(centered) + 2 * int(momentum != 0); }
  template <class V>
  V update(V w, V g, auto state) const {
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    V v = square(state.get(0), g);
    state.set(0, v);
    if (centered) {
      const V a = average(state.get(1), g);
      state.set(1, a);
      v = fma(V::all(-1) * a, a, v);
    }
    const V d = sqrt(v) + V::all(eps);
    if (momentum == 0) return w + V::all(negative_lr) * g / d;
    const int place = centered ? 2 : 1;
    const V b = state.get(place) * V::all(momentum) + g / d;
    state.set(place, b);
    return fma(b, V::all(negative_lr), w);
  }
};

inline void check(const RMSpropOptions& options) {
  require_not_negative("lr", options.lr);
  require_not_negative("alpha", options.alpha);
  require_not_negative("eps", options.eps);
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("momentum", options.momentum);
}

inline RMSpropRule rule_for(const RMSpropOptions& options, std::uint64_t) {
  return {.negative_lr = float(-options.lr),
          .square = MeanSquare(options.alpha),
          .average = Lerp(1 - options.alpha),
          .eps = float(options.eps),
          .weight_decay = float(options.weight_decay),
          .momentum = float(options.momentum),
          .centered = options.centered,
          .maximize = options.maximize};
}

using RMSprop = FusedOptimizer<RMSpropOptions>;

}  // namespace lockstep::optim
