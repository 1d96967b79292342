#pragma once

// Which logical shards a rank computes, and with which random numbers. Pure functions.

#include <cstdint>

#include "lockstep/base/part.h"
#include "lockstep/comm/topology.h"

namespace lockstep::parallel {

using base::Part;
using base::shards_of;
using base::ShardSpan;

/// The same for a rank of the world.
constexpr ShardSpan shards_of(const comm::Topology& place, int shards) {
  return shards_of(place.rank, place.world, shards);
}

/// The shards of all ranks of the node, which have a gradient slot there each, in this order.
constexpr ShardSpan shards_on_node(const comm::Topology& place, int shards) {
  const int first = place.rank - place.local_rank;
  return {shards_of(first, place.world, shards).first,
          shards_of(first + place.local_world - 1, place.world, shards).last};
}

/// The seed of torch's generator during a shard's forward and backward: a function of the
/// run's seed, the step (from 1), the shard and its pass within the step (from 0), so that dropout
/// draws the same numbers on whatever rank the shard runs, and others in each pass. SplitMix64's
/// finaliser (Steele, Lea, Flood 2014), chained; a later pass goes one link further.
constexpr std::uint64_t shard_seed(std::uint64_t seed, std::uint64_t step, int shard, std::uint64_t pass = 0) {
  const auto mix = [](std::uint64_t z) {
    z += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  const std::uint64_t first = mix(mix(mix(seed) ^ step) ^ std::uint64_t(shard));
  return pass == 0 ? first : mix(first ^ pass);
}

}  // namespace lockstep::parallel
