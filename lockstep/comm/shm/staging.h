#pragma once

// Where a node's ranks meet for a collective. Every rank has two posts, which say what it is calling
// and carry what is small, and two halves, through which tensors go that do not live in shared
// memory, a chunk at a time. Posts and halves are used in turn, so that one meeting per collective
// or chunk is enough: whoever has come to meeting c+1 has finished what meeting c was for, reading
// the others' halves or working in them.
//
// Messages between two ranks need no meeting. They go through the half of the sender that its next collective will use,
// which nobody looks at until then; by lanes the two know how far they are.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lockstep/base/node.h"
#include "lockstep/comm/collective_note.h"

namespace lockstep::comm {

/// Where a rank's tensor lies, see SharedTensors. region 0: not in shared memory.
struct Place {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;  ///< in the rank's part of the region
};

/// One cache line: a small collective costs one transfer of it between two cores.
struct alignas(64) Post {
  static constexpr std::size_t kPayload = 40;
  std::atomic<base::Mark> mark;  ///< (generation, collectives called), stored last
  CollectiveNote note;
  std::byte payload[kPayload];  ///< the data when it fits, a Place otherwise
};
static_assert(sizeof(Post) == 64);

/// What two ranks have of each other's messages (courier.h), in the area of one of them: what it has for the peer, and
/// how much of the peer's it has taken.
struct alignas(128) Lane {
  std::atomic<base::Mark> written;            ///< (generation, chunks of all messages to the peer so far), stored last
  CollectiveNote note;                        ///< of the message that is under way
  std::int32_t half = 0;                      ///< through which it goes
  alignas(64) std::atomic<base::Mark> taken;  ///< (generation, chunks of all messages from the peer so far)
};
static_assert(sizeof(Lane) == 128);

class Staging {
 public:
  static constexpr std::size_t kHalf = std::size_t(256) << 10;  ///< bytes per chunk

  /// Collective over the node: local rank 0 grows the segment, everybody maps it.
  explicit Staging(base::Node& node);

  std::byte* half(int rank, int which) const { return area(rank) + kPosts + kLanes + std::size_t(which) * kHalf; }
  /// Of `rank` with `peer`.
  Lane& lane(int rank, int peer) const { return *(reinterpret_cast<Lane*>(area(rank) + kPosts) + peer); }
  Post& post(int rank, int which) const { return *reinterpret_cast<Post*>(area(rank) + std::size_t(which) * kApart); }

 private:
  static constexpr std::size_t kPosts = 4096;
  // As many as there can ever be: a place is the same in all generations, so that what is found there has its mark.
  static constexpr std::size_t kLanes = sizeof(Lane) * base::kMaxLocalRanks;
  static constexpr std::size_t kApart = 128;  // some processors fetch lines in pairs
  static constexpr std::size_t kArea = kPosts + kLanes + 2 * kHalf;
  std::byte* area(int rank) const { return mapping_.data() + std::size_t(rank) * kArea; }

  base::Mapping mapping_;
};

}  // namespace lockstep::comm
