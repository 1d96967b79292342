#pragma once

// Whose a shard is: the inverse of shards_of() in base/part.h.

#include <cstdint>

namespace lockstep::base {

/// The rank of `ranks` that computes shard `shard` of `shards`; ranks <= shards.
constexpr int rank_of_shard(int shard, int ranks, int shards) {
  return int(((std::int64_t(shard) + 1) * ranks - 1) / shards);
}

}  // namespace lockstep::base
