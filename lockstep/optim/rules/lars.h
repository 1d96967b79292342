#pragma once

// LARS (You et al. 2017, "Large Batch Training of Convolutional Networks"); torch has none. With g the mean gradient
// and norms over the parameter:
//
//   r = trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)     (1 where a norm is 0)
//   g = r * (g + weight_decay * w)
//
// and on as in SGD. A parameter without weight decay has r = 1, as biases and BatchNorm's are to have in the papers,
// unless `always_adapt`.

#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/option.h"
#include "lockstep/optim/rules/sgd.h"

namespace lockstep::optim {

struct LARSOptions {
  Option<double> lr = standard(1e-3);
  Option<double> momentum = standard(0.0);
  Option<double> dampening = standard(0.0);
  Option<double> weight_decay = standard(0.0);
  Option<bool> nesterov = standard(false);  ///< needs momentum > 0 and dampening 0
  Option<double> trust_coefficient = standard(1e-3);
  Option<double> eps = standard(1e-8);
  Option<bool> always_adapt = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &LARSOptions::lr},
                      Field{"momentum", &LARSOptions::momentum},
                      Field{"dampening", &LARSOptions::dampening},
                      Field{"weight_decay", &LARSOptions::weight_decay},
                      Field{"nesterov", &LARSOptions::nesterov},
                      Field{"trust_coefficient", &LARSOptions::trust_coefficient},
                      Field{"eps", &LARSOptions::eps},
                      Field{"always_adapt", &LARSOptions::always_adapt},
                      Field{"maximize", &LARSOptions::maximize}};
  }
};

struct LARSRule {
  SGDRule sgd;  ///< without weight decay
  double weight_decay = 0;
  double trust_coefficient = 0;
  double eps = 0;
  bool adapts = false;
  float ratio = 1;
  bool maximize = false;

  constexpr int arrays() const { return sgd.arrays(); }
  template <class V>
  V measured(V, V g, auto) const {
    return g;
  }
  void set_norms(double weights, double gradients) {
    if (adapts && weights > 0 && gradients > 0)
      ratio = float(trust_coefficient * weights / (gradients + weight_decay * weights + eps));
  }
  template <class V>
  V update(V w, V g, auto state) const {
    if (weight_decay != 0) g = fma(w, V::all(float(weight_decay)), g);
    return sgd.update(w, g * V::all(ratio), state);
  }
};

inline SGDOptions without_decay(const LARSOptions& options) {
  return {
      .lr = *options.lr, .momentum = *options.momentum, .dampening = *options.dampening, .nesterov = *options.nesterov};
}

inline void check(const LARSOptions& options) {
  check(without_decay(options));
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("trust_coefficient", options.trust_coefficient);
  require_not_negative("eps", options.eps);
}

inline LARSRule rule_for(const LARSOptions& options, std::uint64_t step) {
  return {.sgd = rule_for(without_decay(options), step),
          .weight_decay = options.weight_decay,
          .trust_coefficient = options.trust_coefficient,
          .eps = options.eps,
          .adapts = options.weight_decay != 0 || options.always_adapt,
          .maximize = options.maximize};
}

using LARS = FusedOptimizer<LARSOptions>;

}  // namespace lockstep::optim
