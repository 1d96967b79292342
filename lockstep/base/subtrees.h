#pragma once

// What a run of the fixed tree's leaves (tree.h) can be added up to before the others are known.

#include <vector>

#include "lockstep/base/part.h"

namespace lockstep::base {

/// The maximal subtrees of the tree over `leaves` leaves (shards, or ranks) that lie within `held`, in order. They
/// cover it. Pure.
std::vector<ShardSpan> whole_subtrees(int leaves, ShardSpan held);

}  // namespace lockstep::base
