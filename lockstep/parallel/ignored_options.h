#pragma once

// Which of DataParallelOptions have nothing to do where they are given.

#include <string>
#include <vector>

#include "lockstep/parallel/options.h"

namespace lockstep::parallel {

/// How gradients are exchanged: in memory that the ranks share, by an optimizer of ours; in buckets; in buckets that a
/// communication hook of the user's gets.
enum class GradientPath { shared, buckets, hooked };

/// "NAME: why" for each, in a group of so many ranks.
std::vector<std::string> ignored_options(const DataParallelOptions& options, GradientPath path, int ranks);

}  // namespace lockstep::parallel
