#pragma once

// What one rank has of its node: the shared segment and its seat at the control page.

#include <utility>

#include "lockstep/base/member.h"
#include "lockstep/base/segment.h"

namespace lockstep::base {

struct Node {
  /// Takes the seat; waits until all ranks of the node have taken theirs.
  Node(Segment shared, int rank, std::chrono::milliseconds timeout = kDefaultTimeout)
      : segment(std::move(shared)), member(segment.control(), rank, timeout) {}

  Segment segment;
  Member member;
};

}  // namespace lockstep::base
