#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/base/tree.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kLanes = 16;

float value(const float* p) { return *p; }
float value(const std::uint16_t* p) { return std::bit_cast<float>(std::uint32_t(*p) << 16); }

template <class T>
float mean_gradient(const Arrays& arrays, std::size_t i) {
  const auto gradient = [&](int slot) { return value(static_cast<const T*>(arrays.gradients[slot]) + i); };
  return base::tree_sum(0, arrays.slots, gradient) * arrays.mean;
}

template <class T>
std::size_t find_nonfinite(const Arrays& arrays, std::size_t begin, std::size_t end) {
  while (begin < end && std::isfinite(mean_gradient<T>(arrays, begin))) ++begin;
  return begin;
}

// Largest{} is no sum, so base::tree_sum is not enough: the same tree.
template <class Join>
double tree_join(const double* values, std::size_t count, Join join) {
  if (count == 1) return values[0];
  const std::size_t half = std::size_t(base::tree_split(int(count)));
  return join(tree_join(values, half, join), tree_join(values + half, count - half, join));
}

// What a gradient adds to a block's sum, for each kind of norm.
struct Square {
  double operator()(double g) const { return g * g; }
};
struct Magnitude {
  double operator()(double g) const { return std::abs(g); }
};
struct Power {
  double p;
  double operator()(double g) const { return std::pow(std::abs(g), p); }
};

struct Sum {
  double operator()(double a, double b) const { return a + b; }
};
// A NaN stays.
struct Largest {
  double operator()(double a, double b) const { return std::isnan(a) || a > b ? a : b; }
};

template <class T, class Term, class Join>
double of_block(const Arrays& arrays, std::size_t begin, std::size_t end, Term term, Join join) {
  double lanes[kLanes] = {};
  for (std::size_t i = begin; i < end; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = join(lanes[lane], term(double(mean_gradient<T>(arrays, i + lane))));
  return tree_join(lanes, kLanes, join);
}

template <class Term, class Join>
void of_blocks(const Arrays& arrays, std::size_t begin, std::size_t end, double* sums, Term term, Join join) {
  const auto block_of = arrays.gradient_type == GradientType::bfloat16 ? of_block<std::uint16_t, Term, Join>
                                                                       : of_block<float, Term, Join>;
  for (std::size_t block = begin / kBlock; block * kBlock < end; ++block)
    sums[block] = block_of(arrays, block * kBlock, std::min(end, (block + 1) * kBlock), term, join);
}

}  // namespace

void power_sums(const Arrays& arrays, std::size_t begin, std::size_t end, double p, double* sums) {
  if (std::isinf(p)) return of_blocks(arrays, begin, end, sums, Magnitude{}, Largest{});
  if (p == 2) return of_blocks(arrays, begin, end, sums, Square{}, Sum{});
  if (p == 1) return of_blocks(arrays, begin, end, sums, Magnitude{}, Sum{});
  of_blocks(arrays, begin, end, sums, Power{p}, Sum{});
}

double norm_of(const double* sums, std::size_t blocks, double p) {
  if (blocks == 0) return 0;
  if (std::isinf(p)) return tree_join(sums, blocks, Largest{});
  const double sum = tree_join(sums, blocks, Sum{});
  return p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p);
}

std::size_t first_nonfinite(const Arrays& arrays, std::size_t begin, std::size_t end) {
  const auto find =
      arrays.gradient_type == GradientType::bfloat16 ? find_nonfinite<std::uint16_t> : find_nonfinite<float>;
  return find(arrays, begin, end);
}

float clip_coefficient(double max_norm, double norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient > 1 ? 1.0f : float(coefficient);
}

}  // namespace lockstep::optim
