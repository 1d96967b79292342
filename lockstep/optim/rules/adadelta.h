#pragma once

// torch.optim.Adadelta. With g the mean gradient:
//
//   g += weight_decay * w
//   v  = rho * v + (1 - rho) * g * g
//   d  = sqrt(a + eps) / sqrt(v + eps) * g
//   a  = rho * a + (1 - rho) * d * d
//   w -= lr * d

#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct AdadeltaOptions {
  Option<double> lr = standard(1.0);
  Option<double> rho = standard(0.9);
  Option<double> eps = standard(1e-6);
  Option<double> weight_decay = standard(0.0);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &AdadeltaOptions::lr}, Field{"rho", &AdadeltaOptions::rho},
                      Field{"eps", &AdadeltaOptions::eps}, Field{"weight_decay", &AdadeltaOptions::weight_decay},
                      Field{"maximize", &AdadeltaOptions::maximize}};
  }
};

struct AdadeltaRule {
  float negative_lr = 0;
  MeanSquare square;
  float eps = 0;
  float weight_decay = 0;
  bool maximize = false;

  constexpr int arrays() const { return 2; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    const V v = square(state.get(0), g);
    const V a = state.get(1);
    const V d = sqrt(a + V::all(eps)) / sqrt(v + V::all(eps)) * g;
    state.set(0, v);
    state.set(1, square(a, d));
    return fma(d, V::all(negative_lr), w);
  }
};

inline void check(const AdadeltaOptions& options) {
  require_not_negative("lr", options.lr);
  require(options.rho >= 0 && options.rho <= 1, "rho", options.rho, "in [0, 1]");
  require_not_negative("eps", options.eps);
  require_not_negative("weight_decay", options.weight_decay);
}

inline AdadeltaRule rule_for(const AdadeltaOptions& options, std::uint64_t) {
  return {.negative_lr = float(-options.lr),
          .square = MeanSquare(options.rho),
          .eps = float(options.eps),
          .weight_decay = float(options.weight_decay),
          .maximize = options.maximize};
}

using Adadelta = FusedOptimizer<AdadeltaOptions>;

}  // namespace lockstep::optim
