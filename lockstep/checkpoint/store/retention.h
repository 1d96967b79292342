#pragma once

// Which checkpoints of a folder may go. A pure function of a list, so that what it never does can be shown.

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::checkpoint {

struct Retention {
  int keep = 0;  ///< so many stay, newest_first() from the newest good one on; 0: all
  int best = 0;  ///< beside them the best so many by their metric
  bool smaller_is_better = false;
  bool operator==(const Retention&) const = default;
};

/// A checkpoint as the decision sees it.
struct Stored {
  std::uint64_t step = 0;
  std::optional<double> metric = {};
  bool good = false;        ///< known to verify
  bool is_readable = true;  ///< false: what it says of its metric could not be read, and it may be the best one
};

/// The steps to remove, sorted. Never all that are known to be good; nothing while none is; never the newest good one,
/// nor one that could not be read.
/// Of equal metrics the earlier step is the better; one that is no number is worse than none.
std::vector<std::uint64_t> surplus(const std::vector<Stored>& all, const Retention& retention);

/// The step with the best metric; nothing when none has one that is a number.
std::optional<std::uint64_t> best_of(const std::vector<Stored>& all, bool smaller_is_better);

}  // namespace lockstep::checkpoint
