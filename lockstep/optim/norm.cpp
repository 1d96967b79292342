#include <algorithm>
#include <bit>

#include "lockstep/base/tree.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kLanes = 16;

float value(const float* p) { return *p; }
float value(const std::uint16_t* p) { return std::bit_cast<float>(std::uint32_t(*p) << 16); }

template <class T>
double square_sum(const Arrays& arrays, std::size_t begin, std::size_t end) {
  const float scale = 1.0f / float(arrays.shards);
  double lanes[kLanes] = {};
  for (std::size_t i = begin; i < end; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto gradient = [&](int shard) { return value(static_cast<const T*>(arrays.gradients[shard]) + i + lane); };
      const float mean = base::tree_sum(0, arrays.shards, gradient) * scale;
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

}  // namespace lockstep::optim
