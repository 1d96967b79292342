#pragma once

// The half of a collective of two levels that is within a node: what its ranks give each other in shared memory before
// the nodes exchange anything, and behind that.

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/comm/network/level_plan.h"
#include "lockstep/comm/node_group.h"

namespace lockstep::comm {

/// Each call is a collective of the node's ranks; `note` says in whose course. Errors as NodeGroup's.
class NodeLevel {
 public:
  explicit NodeLevel(NodeGroup& node) : node_(node) {}

  void meet(const CollectiveNote& note);

  /// Where all ranks have elements [first, first + n) of something, by rank of the node.
  using Take = std::function<void(const std::vector<const std::byte*>& inputs, std::size_t first, std::size_t n)>;
  /// Each rank has elements of `width` bytes at `data`, and takes of what all have those in its share, counted in that.
  void collect(const CollectiveNote& note, const std::byte* data, std::size_t width, const Shares& shares,
               const Take& take);
  /// The other way: what each rank has in its share comes to all others, in the same place.
  void spread(const CollectiveNote& note, std::byte* data, std::size_t width, const Shares& shares);

  using TakeRow =
      std::function<void(int row, const std::vector<const std::byte*>& inputs, std::size_t first, std::size_t n)>;
  /// Each rank has rows of `elements`, one behind the other. takers[row] is who takes it of all.
  void collect_rows(const CollectiveNote& note, const std::byte* data, std::size_t elements, std::size_t width,
                    const std::vector<int>& takers, const TakeRow& take);
  /// rows[rank], of `bytes` each, are what each rank has; they come to all others. A row lies at places[row].
  void spread_rows(const CollectiveNote& note, std::size_t bytes, const std::vector<std::vector<int>>& rows,
                   const std::vector<std::byte*>& places);

  /// The bytes of one rank come to all others.
  void copy_from(const CollectiveNote& note, int rank, std::byte* data, std::size_t bytes);

  /// At `from` there are so many bytes for each rank; what each has for this one is put at `to`, by rank.
  void swap(const CollectiveNote& note, const std::byte* from, std::byte* to, std::size_t bytes);

 private:
  NodeGroup& node_;
};

}  // namespace lockstep::comm
