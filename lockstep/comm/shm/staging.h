#pragma once

// The staging areas of a node's ranks: through them a Group moves tensors that do not live
// in the segment. Every rank has a note (what it is doing) and two halves; a collective
// goes through them in chunks, alternating halves, so that one barrier per chunk is enough:
// whoever has passed the barrier of chunk c+1 has finished reading chunk c.

#include <cstddef>
#include <cstdint>

#include "lockstep/base/node.h"

namespace lockstep::comm {

/// What a rank says it is calling, so that peers can tell a mismatch.
struct CollectiveNote {
  std::uint64_t sequence = 0;    ///< how many collectives the rank had called before: an old note never matches
  std::uint32_t collective = 0;  ///< 1 all_reduce, 2 broadcast, 3 all_gather, 4 barrier
  std::int32_t detail = 0;       ///< reduce op, or root
  std::int32_t dtype = 0;        ///< c10::ScalarType
  std::int64_t elements = 0;
  bool operator==(const CollectiveNote&) const = default;
};

class Staging {
 public:
  static constexpr std::size_t kHalf = std::size_t(256) << 10;  ///< bytes per chunk

  /// Collective over the node: local rank 0 grows the segment, everybody maps it.
  explicit Staging(base::Node& node);

  std::byte* half(int rank, int which) const { return area(rank) + kNote + std::size_t(which) * kHalf; }
  /// Two notes per rank, used in turn for the same reason as the halves.
  CollectiveNote& note(int rank, int which) const { return reinterpret_cast<CollectiveNote*>(area(rank))[which]; }

 private:
  static constexpr std::size_t kNote = 4096;
  static constexpr std::size_t kArea = kNote + 2 * kHalf;
  std::byte* area(int rank) const { return mapping_.data() + std::size_t(rank) * kArea; }

  base::Mapping mapping_;
};

}  // namespace lockstep::comm
