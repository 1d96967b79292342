#include "lockstep/data/transforms/gamma.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace lockstep::data {
namespace {

// Of 53 bits, neither 0 nor 1: logarithms are finite.
double uniform(base::RandomStream& random) {
  const std::uint64_t high = random.next();
  return (double((high << 32 | random.next()) >> 12) + 0.5) * 0x1p-52;
}

// Box and Muller's.
double normal(base::RandomStream& random) {
  const double radius = std::sqrt(-2 * std::log(uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

}  // namespace

// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000. A shape below 1 is one above it times
// u^(1/shape).
double log_gamma(double shape, base::RandomStream& random) {
  const double boost = shape < 1 ? std::log(uniform(random)) / shape : 0;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(random);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(uniform(random)) < x * x / 2 + d * (1 - v + std::log(v))) return std::log(d * v) + boost;
  }
}

// Gammas over their sum; their logarithms less the largest, so that one of them is 1 and the sum is not 0.
std::vector<float> draw_dirichlet(double alpha, int count, base::RandomStream& random) {
  std::vector<double> gammas(static_cast<std::size_t>(count));
  for (double& gamma : gammas) gamma = log_gamma(alpha, random);
  const double largest = *std::ranges::max_element(gammas);
  double sum = 0;
  for (double& gamma : gammas) sum += gamma = std::exp(gamma - largest);
  std::vector<float> shares;
  shares.reserve(gammas.size());
  for (const double gamma : gammas) shares.push_back(std::max(float(gamma / sum), std::numeric_limits<float>::min()));
  return shares;
}

}  // namespace lockstep::data
