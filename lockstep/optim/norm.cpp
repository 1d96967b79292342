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

template <class T>
double square_sum(const Arrays& arrays, std::size_t begin, std::size_t end) {
  double lanes[kLanes] = {};
  for (std::size_t i = begin; i < end; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float mean = mean_gradient<T>(arrays, i + lane);
      lanes[lane] += double(mean) * double(mean);
    }
  return base::tree_sum(0, int(kLanes), [&](int lane) { return lanes[lane]; });
}

}  // namespace

void square_sums(const Arrays& arrays, std::size_t begin, std::size_t end, double* sums) {
  const auto sum = arrays.gradient_type == GradientType::bfloat16 ? square_sum<std::uint16_t> : square_sum<float>;
  for (std::size_t block = begin / kBlock; block * kBlock < end; ++block)
    sums[block] = sum(arrays, block * kBlock, std::min(end, (block + 1) * kBlock));
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
