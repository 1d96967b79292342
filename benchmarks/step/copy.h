#pragma once

// The yardstick: how fast the ranks together copy shared memory.

#include <memory>
#include <vector>

#include "benchmarks/step/contender.h"
#include "benchmarks/support/pages.h"
#include "lockstep/comm/group.h"

namespace lockstep::bench {

/// Each rank copies its part of `bytes` from one area of the segment to another: by memcpy, by
/// the widest plain stores, by the widest streaming stores. Collective.
std::vector<std::unique_ptr<Contender>> make_copies(const std::shared_ptr<comm::Group>& group, std::size_t bytes,
                                                    Pages pages);

}  // namespace lockstep::bench
