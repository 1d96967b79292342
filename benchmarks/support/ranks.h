#pragma once

// Two (or more) processes that measure together.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::bench {

/// One group per segment: SharedState keeps one state region in a segment.
using Groups = std::vector<std::shared_ptr<comm::Group>>;

/// Forks `ranks` processes that share `segments` fresh segments and calls body in each. What rank
/// 0 returns is returned. Error when a rank fails. Call it before this process starts threads.
std::string run_ranks(int ranks, int segments, const std::function<std::string(const Groups&)>& body);

}  // namespace lockstep::bench
