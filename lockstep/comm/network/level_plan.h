#pragma once

// Who does what in a collective of two levels: in shared memory within each node, by messages between nodes. Pure
// functions of the nodes' ranks and the number of elements, so all ranks make one plan. docs/design/comm.md, "Several
// nodes".

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/base/part.h"

namespace lockstep::comm {

/// Ranks [first, last), leaves of the tree of a sum.
using RankSpan = base::ShardSpan;

/// The nodes of a group, counted from 0, and their ranks, which follow one another.
class Levels {
 public:
  /// `nodes`: the number of each rank's, rising, with or without gaps.
  explicit Levels(const std::vector<int>& nodes);

  int nodes() const { return int(firsts_.size()) - 1; }
  int world() const { return firsts_.back(); }
  int first(int node) const { return firsts_[std::size_t(node)]; }
  int count(int node) const { return first(node + 1) - first(node); }
  int node_of(int rank) const;
  /// The rank of `node` that has to do with what is of `rank` alone; where that is its node, itself.
  int partner(int node, int rank) const { return first(node) + (rank - first(node_of(rank))) % count(node); }
  /// What a node's ranks are added up to before they are sent: whole subtrees of the tree over all ranks.
  const std::vector<RankSpan>& runs(int node) const { return runs_[std::size_t(node)]; }
  /// How many ranks nodes have, each number once.
  const std::vector<int>& counts() const { return counts_; }

 private:
  std::vector<int> firsts_;  ///< by node its first rank; behind them how many there are
  std::vector<int> counts_;
  std::vector<std::vector<RankSpan>> runs_;
};

/// How the ranks of a node share out elements: as much for each of them, or all for the first.
struct Shares {
  std::size_t elements = 0;
  int takers = 1;  ///< all ranks of the node, or one

  std::size_t begin(int local) const {
    return local >= takers ? elements : elements * std::size_t(local) / std::size_t(takers);
  }
  std::size_t size(int local) const { return begin(local + 1) - begin(local); }
  std::size_t longest() const { return (elements + std::size_t(takers) - 1) / std::size_t(takers); }
  /// How many of the elements [first, first + n) of the longest share that of `local` has.
  std::size_t overlap(int local, std::size_t first, std::size_t n) const {
    return first < size(local) ? std::min(n, size(local) - first) : 0;
  }
};

struct ElementRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// A part of the elements that one rank of each node has in its share.
struct Stretch {
  ElementRange range;
  std::vector<int> holders;  ///< by node: the rank
};

/// Those of the share of local rank `local` of `node`, rising, where every node shares out the elements among all its
/// ranks. The holders of one all find it among theirs, in the same order as others that they share.
std::vector<Stretch> stretches_of(const Levels& levels, std::size_t elements, int node, int local);

/// The elements where the first rank of each node has all of them.
Stretch stretch_of_leaders(const Levels& levels, std::size_t elements);

/// Part `part` of a range that is cut into so many.
ElementRange part_of(const ElementRange& range, int part, int parts);

}  // namespace lockstep::comm
