#pragma once

// How the work of a step is divided: the global batch into logical shards, the shards among ranks. Pure functions.

#include <cstdint>

namespace lockstep::base {

/// Shards [first, last).
struct ShardSpan {
  int first = 0;
  int last = 0;
  int count() const { return last - first; }
  bool operator==(const ShardSpan&) const = default;
};

/// Rank r of R computes shards floor(rS/R) ... floor((r+1)S/R) - 1; R <= S.
constexpr ShardSpan shards_of(int rank, int ranks, int shards) {
  const auto edge = [&](int r) { return int(std::int64_t(r) * shards / ranks); };
  return {edge(rank), edge(rank + 1)};
}

/// What a rank computes of each step. As it stands: everything, in one shard.
struct Part {
  int rank = 0;
  int ranks = 1;
  int shards = 1;  ///< of the global batch; at least `ranks`

  constexpr ShardSpan span() const { return shards_of(rank, ranks, shards); }
  bool operator==(const Part&) const = default;
};

/// The batches that an epoch of `samples` samples has when each of `shards` shards takes `shard_batch` of its own at a
/// time. A shard has ceil(samples / shards), as DistributedSampler pads them, and its last batch may be smaller; with
/// `drop_last` it has floor(samples / shards), and whole batches only.
constexpr std::int64_t batches_per_epoch(std::int64_t samples, int shards, std::int64_t shard_batch, bool drop_last) {
  const auto divide = [&](std::int64_t a, std::int64_t b) { return a / b + (!drop_last && a % b != 0); };
  return divide(divide(samples, shards), shard_batch);
}

}  // namespace lockstep::base
