#pragma once

// Draws of the Gamma distribution and of what is made of it.

#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::data {

/// The logarithm of a draw of Gamma(shape, 1), shape > 0: small shapes give numbers that a double calls 0.
double log_gamma(double shape, base::RandomStream& random);

/// A draw of the symmetric Dirichlet distribution: `count` (at least 1) float32 above 0 whose sum is 1, up to
/// rounding. alpha > 0; with 1 all such numbers are as likely.
std::vector<float> draw_dirichlet(double alpha, int count, base::RandomStream& random);

}  // namespace lockstep::data
