#pragma once

// What one rank has of its node: the shared segment, which it holds, and its seat at the control page.

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/member.h"
#include "lockstep/base/segment.h"

namespace lockstep::base {

struct Node {
  /// Takes the seat; waits until all ranks of the node have taken theirs. Error when the segment was opened for a
  /// generation that is over.
  Node(Segment shared, int rank, std::chrono::milliseconds timeout = kDefaultTimeout, Whole whole = {})
      : segment(held(std::move(shared))),
        member(segment.control(), rank, timeout, segment.generation(), std::move(whole)) {}

  /// What a group of these of the node's ranks is a part of; of the outermost group where this is a part itself.
  Whole whole_of(const std::vector<int>& ranks) const {
    Whole whole = member.whole();
    if (whole.page == nullptr) {
      auto own = std::make_shared<Segment>(Segment::open(segment.path(), member.size()));
      whole.page = std::shared_ptr<ControlPage>(own, &own->control());
      whole.generation = member.generation();
      whole.abroad = member.abroad();
    }
    whole.ranks.clear();
    for (const int rank : ranks) whole.ranks.push_back(member.seat_of(rank));
    return whole;
  }

  Segment segment;
  Member member;

 private:
  static Segment held(Segment segment) {
    segment.hold();
    return segment;
  }
};

}  // namespace lockstep::base
