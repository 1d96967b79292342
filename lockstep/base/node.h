#pragma once

// What one rank has of its node: the shared segment, which it holds, and its seat at the control page.

#include <utility>

#include "lockstep/base/member.h"
#include "lockstep/base/segment.h"

namespace lockstep::base {

struct Node {
  /// Takes the seat; waits until all ranks of the node have taken theirs. Error when the segment was opened for a
  /// generation that is over.
  Node(Segment shared, int rank, std::chrono::milliseconds timeout = kDefaultTimeout)
      : segment(held(std::move(shared))), member(segment.control(), rank, timeout, segment.generation()) {}

  Segment segment;
  Member member;

 private:
  static Segment held(Segment segment) {
    segment.hold();
    return segment;
  }
};

}  // namespace lockstep::base
