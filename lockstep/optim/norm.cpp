#include <algorithm>

#include "lockstep/base/tree.h"
#include "lockstep/optim/update.h"

namespace lockstep::optim {
namespace {

constexpr std::size_t kLanes = 16;

double square_sum(const Arrays& arrays, std::size_t begin, std::size_t end) {
  const float scale = 1.0f / float(arrays.shards);
  double lanes[kLanes] = {};
  for (std::size_t i = begin; i < end; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float mean =
          base::tree_sum(0, arrays.shards, [&](int shard) { return arrays.gradients[shard][i + lane]; }) * scale;
      lanes[lane] += double(mean) * double(mean);
    }
  return base::tree_sum(0, int(kLanes), [&](int lane) { return lanes[lane]; });
}

}  // namespace

void square_sums(const Arrays& arrays, std::size_t begin, std::size_t end, double* sums) {
  for (std::size_t block = begin / kBlock; block * kBlock < end; ++block)
    sums[block] = square_sum(arrays, block * kBlock, std::min(end, (block + 1) * kBlock));
}

}  // namespace lockstep::optim
