#pragma once

// LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning", algorithm 2), with Adam's bias correction as in
// Apex's FusedLAMB; torch has none. With g the mean gradient, m and v as in moments.h, and norms over the parameter:
//
//   d  = (m / (1 - beta1^t)) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay * w
//   r  = |w| / |d|     (1 where a norm is 0)
//   w -= lr * r * d
//
// A parameter without weight decay has r = 1, unless `always_adapt` (Apex: use_nvlamb). Apex's max_grad_norm is
// StepOptions::max_norm.

#include <cmath>
#include <cstdint>
#include <tuple>

#include "lockstep/optim/rules/moments.h"

namespace lockstep::optim {

struct LAMBOptions {
  Option<double> lr = standard(1e-3);
  Option<Betas> betas = standard(Betas{0.9, 0.999});
  Option<double> eps = standard(1e-6);  ///< above 0
  Option<double> weight_decay = standard(1e-2);
  Option<bool> always_adapt = standard(false);
  Option<bool> maximize = standard(false);

  static constexpr auto fields() {
    return std::tuple{Field{"lr", &LAMBOptions::lr},
                      Field{"betas", &LAMBOptions::betas},
                      Field{"eps", &LAMBOptions::eps},
                      Field{"weight_decay", &LAMBOptions::weight_decay},
                      Field{"always_adapt", &LAMBOptions::always_adapt},
                      Field{"maximize", &LAMBOptions::maximize}};
  }
};

struct LAMBRule {
  Lerp first_moment;
  MeanSquare second_moment;
  float bias_correction1 = 1;
  float bias_correction2_sqrt = 1;
  float eps = 0;
  float weight_decay = 0;
  double lr = 0;
  bool adapts = false;
  float negative_step_size = 0;  ///< -lr * ratio
  bool maximize = false;

  constexpr int arrays() const { return 2; }
  template <class V>
  V measured(V w, V g, auto state) const {
    const V m = first_moment(state.get(0), g);
    const V v = second_moment(state.get(1), g);
    state.set(0, m);
    state.set(1, v);
    const V direction = m / V::all(bias_correction1) / (sqrt(v) / V::all(bias_correction2_sqrt) + V::all(eps));
    return fma(w, V::all(weight_decay), direction);
  }
  void set_norms(double weights, double directions) {
    if (adapts && weights > 0 && directions > 0) negative_step_size = float(-lr * weights / directions);
  }
  template <class V>
  V moved(V w, V direction) const {
    return fma(direction, V::all(negative_step_size), w);
  }
  template <class V>
  V update(V w, V g, auto state) const {
    return moved(w, measured(w, g, state));
  }
};

inline void check(const LAMBOptions& options) {
  require_not_negative("lr", options.lr);
  check_betas(options.betas);
  require(std::isfinite(*options.eps) && options.eps > 0, "eps", options.eps, "above 0");
  require_not_negative("weight_decay", options.weight_decay);
}

inline LAMBRule rule_for(const LAMBOptions& options, std::uint64_t step) {
  const auto [beta1, beta2] = *options.betas;
  return {.first_moment = Lerp(1 - beta1),
          .second_moment = MeanSquare(beta2),
          .bias_correction1 = float(1 - std::pow(beta1, double(step))),
          .bias_correction2_sqrt = float(std::sqrt(1 - std::pow(beta2, double(step)))),
          .eps = float(options.eps),
          .weight_decay = float(options.weight_decay),
          .lr = options.lr,
          .adapts = options.weight_decay != 0 || options.always_adapt,
          .negative_step_size = float(-options.lr),
          .maximize = options.maximize};
}

using LAMB = FusedOptimizer<LAMBOptions>;

}  // namespace lockstep::optim
