#pragma once

// Where a rank is, in the job and on its machine. On one node rank and local rank are the same number; what they count
// is not, so whoever needs one says which.

namespace lockstep::comm {

/// The ranks of a node follow one another in the world.
struct Topology {
  int rank = 0;         ///< in the world: what peers call it, and which shards of the global batch it computes
  int world = 1;        ///< ranks of the job
  int node = 0;         ///< its machine
  int nodes = 1;        ///< machines of the job
  int local_rank = 0;   ///< on its node: its seat, its slice of the node's state, where its gradient slots are
  int local_world = 1;  ///< ranks of its node
  bool operator==(const Topology&) const = default;
};

/// Rank `rank` of `world` that are all on one node.
constexpr Topology on_one_node(int rank, int world) {
  return {.rank = rank, .world = world, .local_rank = rank, .local_world = world};
}

}  // namespace lockstep::comm
