#pragma once

// Each rule of lockstep/optim/rules/ once more, in the plainest way, and options of each that take different ways
// through its formula. A new rule has its function and its rows here.

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/optim/rule.h"

namespace lockstep::optim {

// One weight and its state, before and after.
struct Weight {
  float w;
  float state[3];
};

inline float lerp(float start, float end, double weight) {
  const float near = float(weight);
  return near < 0.5f ? std::fma(near, end - start, start) : std::fma(near - 1, end - start, end);
}

inline float mean_square(float mean, float g, double beta) {
  return std::fma(float(1 - beta) * g, g, mean * float(beta));
}

inline Weight formula(const SGDRule& r, Weight x, float g) {
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  if (r.momentum != 0) {
    x.state[0] = r.first ? g : std::fma(g, r.gradient_weight, x.state[0] * r.momentum);
    g = r.nesterov ? std::fma(x.state[0], r.momentum, g) : x.state[0];
  }
  x.w = std::fma(g, r.negative_lr, x.w);
  return x;
}

// Of the betas that all rows below have but one.
inline Weight formula(const AdamRule& r, Weight x, float g) {
  const double beta1 = r.first_moment.from_end ? 0.3 : 0.9;
  x.w *= r.decoupled_decay;
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = lerp(x.state[0], g, 1 - beta1);
  x.state[1] = mean_square(x.state[1], g, 0.999);
  if (r.amsgrad) x.state[2] = std::max(x.state[2], x.state[1]);
  const float u = x.state[r.amsgrad ? 2 : 1];
  x.w += r.negative_step_size * x.state[0] / (std::sqrt(u) / r.bias_correction2_sqrt + r.eps);
  return x;
}

inline Weight formula(const AdadeltaRule& r, Weight x, float g) {
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = mean_square(x.state[0], g, 0.9);
  const float d = std::sqrt(x.state[1] + r.eps) / std::sqrt(x.state[0] + r.eps) * g;
  x.state[1] = mean_square(x.state[1], d, 0.9);
  x.w = std::fma(d, r.negative_lr, x.w);
  return x;
}

inline Weight formula(const AdagradRule& r, Weight x, float g) {
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = std::fma(g, g, r.first ? r.initial : x.state[0]);
  x.w += r.negative_lr * g / (std::sqrt(x.state[0]) + r.eps);
  return x;
}

inline Weight formula(const LionRule& r, Weight x, float g) {
  const float applied = lerp(x.state[0], g, 1 - 0.9);
  x.state[0] = lerp(x.state[0], g, 1 - 0.99);
  x.w = std::fma(float((applied > 0) - (applied < 0)), r.negative_lr, x.w * r.decoupled_decay);
  return x;
}

inline Weight formula(const NAdamRule& r, Weight x, float g) {
  x.w *= r.decoupled_decay;
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = lerp(x.state[0], g, 1 - 0.9);
  x.state[1] = mean_square(x.state[1], g, 0.999);
  const float d = std::sqrt(x.state[1] / r.bias_correction2) + r.eps;
  x.w += r.negative_gradient_step * g / d;
  x.w += r.negative_moment_step * x.state[0] / d;
  return x;
}

inline Weight formula(const RAdamRule& r, Weight x, float g) {
  x.w *= r.decoupled_decay;
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = lerp(x.state[0], g, 1 - 0.9);
  x.state[1] = mean_square(x.state[1], g, 0.999);
  float step = x.state[0] / r.bias_correction1 * r.lr;
  if (r.rectification != 0)
    step = step * (1 / (std::sqrt(x.state[1]) + r.eps) * r.bias_correction2_sqrt) * r.rectification;
  x.w -= step;
  return x;
}

inline Weight formula(const RMSpropRule& r, Weight x, float g) {
  if (r.weight_decay != 0) g = std::fma(x.w, r.weight_decay, g);
  x.state[0] = mean_square(x.state[0], g, 0.99);
  float v = x.state[0];
  if (r.centered) {
    x.state[1] = lerp(x.state[1], g, 1 - 0.99);
    v = std::fma(-x.state[1], x.state[1], v);
  }
  const float d = std::sqrt(v) + r.eps;
  if (r.momentum == 0) {
    x.w += r.negative_lr * g / d;
    return x;
  }
  float& b = x.state[r.centered ? 2 : 1];
  b = b * r.momentum + g / d;
  x.w = std::fma(b, r.negative_lr, x.w);
  return x;
}

inline Weight formula(const LARSRule& r, Weight x, float g) {
  if (r.weight_decay != 0) g = std::fma(x.w, float(r.weight_decay), g);
  return formula(r.sgd, x, g * r.ratio);
}

inline Weight formula(const LAMBRule& r, Weight x, float g) {
  x.state[0] = lerp(x.state[0], g, 1 - 0.9);
  x.state[1] = mean_square(x.state[1], g, 0.999);
  const float d = x.state[0] / r.bias_correction1 / (std::sqrt(x.state[1]) / r.bias_correction2_sqrt + r.eps);
  x.w = std::fma(std::fma(x.w, r.weight_decay, d), r.negative_step_size, x.w);
  return x;
}

inline Weight formula(const KeepRule&, Weight x, float) { return x; }

template <class R>
R normed(R rule) {
  rule.set_norms(3.5, 0.3);
  return rule;
}

inline std::vector<Rule> rules() {
  return {KeepRule{},
          KeepRule{.state_arrays = 3},
          rule_for(SGDOptions{.lr = 0.1}, 1),
          rule_for(SGDOptions{.lr = 0.1, .weight_decay = 0.01}, 3),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9}, 1),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3}, 2),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, 2),
          rule_for(SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .maximize = true}, 2),
          rule_for(AdamOptions{.lr = 0.01}, 1),
          rule_for(AdamOptions{.lr = 0.01, .weight_decay = 0.1}, 17),
          rule_for(AdamOptions{.lr = 0.01, .betas = {0.3, 0.999}}, 17),
          rule_for(AdamOptions{.lr = 0.01, .amsgrad = true}, 4),
          rule_for(AdamWOptions{.lr = 0.01}, 5),
          rule_for(AdamWOptions{.lr = 0.01, .amsgrad = true, .maximize = true}, 5),
          rule_for(AdadeltaOptions{}, 1),
          rule_for(AdadeltaOptions{.weight_decay = 0.1}, 2),
          rule_for(AdagradOptions{.initial_accumulator_value = 0.5}, 1),
          rule_for(AdagradOptions{.lr_decay = 0.1, .weight_decay = 0.1}, 6),
          normed(rule_for(LARSOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, 2)),
          rule_for(LARSOptions{.lr = 0.1}, 1),
          normed(rule_for(LAMBOptions{.maximize = true}, 3)),
          rule_for(LAMBOptions{.weight_decay = 0}, 1),
          rule_for(LionOptions{}, 1),
          rule_for(LionOptions{.lr = 0.01, .weight_decay = 0.1}, 2),
          rule_for(NAdamOptions{}, 1),
          rule_for(NAdamOptions{.weight_decay = 0.1}, 30),
          rule_for(NAdamOptions{.weight_decay = 0.1, .decoupled_weight_decay = true}, 3),
          rule_for(RAdamOptions{.weight_decay = 0.1}, 2),
          rule_for(RAdamOptions{.weight_decay = 0.1, .decoupled_weight_decay = true}, 30),
          rule_for(RMSpropOptions{}, 1),
          rule_for(RMSpropOptions{.weight_decay = 0.1, .momentum = 0.9}, 2),
          rule_for(RMSpropOptions{.centered = true}, 2),
          rule_for(RMSpropOptions{.momentum = 0.9, .centered = true}, 2)};
}

}  // namespace lockstep::optim
