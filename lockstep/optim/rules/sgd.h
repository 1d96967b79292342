#pragma once

// torch.optim.SGD. With g the mean gradient:
//
//   g += weight_decay * w
//   m  = first ? g : momentum * m + (1 - dampening) * g     (only if momentum != 0)
//   g  = nesterov ? g + momentum * m : m
//   w -= lr * g

#include <cmath>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/option.h"

namespace lockstep::optim {

struct SGDOptions {
  Option<double> lr = standard(1e-3);
  Option<double> momentum = standard(0.0);
  Option<double> dampening = standard(0.0);
  Option<double> weight_decay = standard(0.0);
  Option<bool> nesterov = standard(false);  ///< needs momentum > 0 and dampening 0
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &SGDOptions::lr},
                      Field{"momentum", &SGDOptions::momentum},
                      Field{"dampening", &SGDOptions::dampening},
                      Field{"weight_decay", &SGDOptions::weight_decay},
                      Field{"nesterov", &SGDOptions::nesterov},
                      Field{"maximize", &SGDOptions::maximize}};
  }
};

struct SGDRule {
  float negative_lr = 0;
  float momentum = 0;
  float gradient_weight = 1;  ///< 1 - dampening
  float weight_decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the step at which the momentum buffer starts as the gradient
  bool maximize = false;

  constexpr int arrays() const { return momentum != 0 ? 1 : 0; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    if (momentum != 0) {
      const V m = first ? g : fma(g, V::all(gradient_weight), state.get(0) * V::all(momentum));
      state.set(0, m);
      g = nesterov ? fma(m, V::all(momentum), g) : m;
    }
    return fma(g, V::all(negative_lr), w);
  }
};

inline void check(const SGDOptions& options) {
  require_not_negative("lr", options.lr);
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("momentum", options.momentum);
  require(std::isfinite(*options.dampening), "dampening", options.dampening, "finite");
  require(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "momentum", options.momentum,
          "above 0, and dampening 0, for nesterov");
}

inline SGDRule rule_for(const SGDOptions& options, std::uint64_t step) {
  return {.negative_lr = float(-options.lr),
          .momentum = float(options.momentum),
          .gradient_weight = float(1 - options.dampening),
          .weight_decay = float(options.weight_decay),
          .nesterov = options.nesterov,
          .first = step == 1,
          .maximize = options.maximize};
}

using SGD = FusedOptimizer<SGDOptions>;

}  // namespace lockstep::optim
