#pragma once

// The group of one node's ranks, with what a group over several nodes makes of it (network/hierarchical_group.h).

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

class NodeGroup : public Group {
 public:
  /// Puts elements [first, first + n) of what this rank gives into `part`.
  using PutChunk = std::function<void(std::byte* part, std::size_t first, std::size_t n)>;
  /// Takes what it wants of these elements of all ranks, by rank. Others read them, too; they are gone behind the call.
  using TakeChunk = std::function<void(const std::vector<std::byte*>& parts, std::size_t first, std::size_t n)>;
  /// Bytes of an element, at most.
  static constexpr std::size_t kWidest = std::size_t(256) << 10;

  /// A collective whose meaning the caller knows. Each rank gives `elements` of `width` bytes and sees those of all, a
  /// chunk at a time; of no elements nothing is put or taken, and the ranks meet. `note` is what they call: where one
  /// calls something else all get an Error that names both, before anything is taken. Ranks whose notes are equal give
  /// the same elements and width.
  virtual void exchange_bytes(const CollectiveNote& note, std::size_t elements, std::size_t width, const PutChunk& put,
                              const TakeChunk& take) = 0;

  /// new_group() of it, which is one of a node, too.
  [[nodiscard]] virtual std::shared_ptr<NodeGroup> new_node_group(const std::vector<int>& ranks) = 0;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) final { return new_node_group(ranks); }

 protected:
  explicit NodeGroup(const Topology& topology) : Group(topology) {}
};

}  // namespace lockstep::comm
