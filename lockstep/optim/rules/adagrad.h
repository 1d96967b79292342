#pragma once

// torch.optim.Adagrad. With g the mean gradient and t the step:
//
//   g += weight_decay * w
//   s += g * g                             (s is initial_accumulator_value before the first step)
//   w -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/option.h"

namespace lockstep::optim {

struct AdagradOptions {
  Option<double> lr = standard(1e-2);
  Option<double> lr_decay = standard(0.0);
  Option<double> weight_decay = standard(0.0);
  Option<double> initial_accumulator_value = standard(0.0);
  Option<double> eps = standard(1e-10);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &AdagradOptions::lr},
                      Field{"lr_decay", &AdagradOptions::lr_decay},
                      Field{"weight_decay", &AdagradOptions::weight_decay},
                      Field{"initial_accumulator_value", &AdagradOptions::initial_accumulator_value},
                      Field{"eps", &AdagradOptions::eps},
                      Field{"maximize", &AdagradOptions::maximize}};
  }
};

struct AdagradRule {
  float negative_lr = 0;
  float weight_decay = 0;
  float initial = 0;
  float eps = 0;
  bool first = false;  ///< the step before which the sum is `initial`
  bool maximize = false;

  constexpr int arrays() const { return 1; }
  template <class V>
  V update(V w, V g, auto state) const {
    if (weight_decay != 0) g = fma(w, V::all(weight_decay), g);
    const V s = fma(g, g, first ? V::all(initial) : state.get(0));
    state.set(0, s);
    return w + V::all(negative_lr) * g / (sqrt(s) + V::all(eps));
  }
};

inline void check(const AdagradOptions& options) {
  require_not_negative("lr", options.lr);
  require_not_negative("lr_decay", options.lr_decay);
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("eps", options.eps);
}

inline AdagradRule rule_for(const AdagradOptions& options, std::uint64_t step) {
  return {.negative_lr = float(-(options.lr / (1 + double(step - 1) * options.lr_decay))),
          .weight_decay = float(options.weight_decay),
          .initial = float(options.initial_accumulator_value),
          .eps = float(options.eps),
          .first = step == 1,
          .maximize = options.maximize};
}

using Adagrad = FusedOptimizer<AdagradOptions>;

}  // namespace lockstep::optim
