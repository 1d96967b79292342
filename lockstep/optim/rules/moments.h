#pragma once

// The two running means of Adam and its kind, of the gradients and of their squares:
//
//   m = (1 - beta1) * (g - m) + m     (from beta1 = 0.5 down: -beta1 * (g - m) + g, for torch's lerp starts at the
//                                      nearer end)
//   v = beta2 * v + (1 - beta2) * g * g

#include <array>

#include "lockstep/optim/rules/option.h"

namespace lockstep::optim {

using Betas = std::array<double, 2>;  ///< of the means of gradients and of their squares

inline void check_betas(const Betas& betas) {
  require_fraction("betas[0]", betas[0]);
  require_fraction("betas[1]", betas[1]);
}

/// lerp(m, g, weight) of ATen.
struct Lerp {
  explicit constexpr Lerp(double given = 0)
      : from_end(float(given) >= 0.5f), weight(from_end ? float(given) - 1 : float(given)) {}
  bool from_end;
  float weight;

  template <class V>
  V operator()(V start, V end) const {
    return fma(V::all(weight), end - start, from_end ? end : start);
  }
};

/// beta * mean + (1 - beta) * g * g.
struct MeanSquare {
  explicit constexpr MeanSquare(double given = 0) : beta(float(given)), rest(float(1 - given)) {}
  float beta;
  float rest;

  template <class V>
  V operator()(V mean, V g) const {
    return fma(V::all(rest) * g, g, mean * V::all(beta));
  }
};

}  // namespace lockstep::optim
