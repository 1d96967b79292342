#pragma once

// Which of DataParallelOptions have nothing to do where they are given.

#include <string>
#include <vector>

#include "lockstep/comm/topology.h"
#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

/// How gradients are exchanged: in memory that the ranks share, by an optimizer of ours; in buckets; in buckets that a
/// communication hook of the user's gets.
enum class GradientPath { shared, buckets, hooked };

/// "NAME: why" for each, in a group of which a rank has this place.
std::vector<std::string> ignored_options(const DataParallelOptions& options, GradientPath path,
                                         const comm::Topology& place);

}  // namespace lockstep::parallel
