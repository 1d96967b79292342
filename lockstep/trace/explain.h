#pragma once

// From the traces of a run's ranks to what stopped it: which collective, who had come to it, who had not, and who is to
// blame. Pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/trace/rank_trace.h"

namespace lockstep::trace {

/// Ranks that called the same.
struct Side {
  std::vector<int> ranks;
  TracedCall call;
};

/// The first collective of a group in which its ranks called different things.
struct Mismatch {
  std::string group;
  std::uint64_t number = 0;
  std::vector<Side> sides;  ///< the larger first; of equals, that of the lowest rank
};

struct Arrival {
  int rank = 0;
  std::int64_t time = 0;  ///< microseconds since the epoch
};

/// A call that some rank was still in.
struct Stop {
  std::string group;
  TracedCall call;                ///< as the first that came calls it
  std::vector<Arrival> arrived;   ///< the earliest first
  std::vector<int> absent;        ///< have left a trace, in which they have not come to it
  std::vector<int> without_file;  ///< have left no trace
};

/// What a rank that is missed somewhere did before.
struct LastDeed {
  int rank = 0;
  bool has_file = false;
  std::uint64_t step = 0;  ///< where it was when it wrote its file
  std::string phase;
  std::string group;               ///< of the call
  std::optional<TracedCall> call;  ///< its last; of a rank without file, the last that it must have taken part in
};

struct Explanation {
  std::string run;
  int attempt = 0;
  int world = 0;
  std::vector<int> ranks;         ///< whose traces these are
  std::vector<int> without_file;  ///< the others
  std::optional<Failure> failure;
  std::vector<Mismatch> mismatches;
  std::vector<Stop> stops;  ///< the earliest first
  std::vector<LastDeed> last;
  std::vector<int> culprits;
  std::string verdict;  ///< why those, in words
};

/// `traces` are of one run and attempt, each of another rank, at least one (trace_file.h: check_together).
Explanation explain(const std::vector<RankTrace>& traces);

/// "all_reduce(256x64 Float, op sum), bucket 3, step 12".
std::string describe(const TracedCall& call);

/// For a person: some lines.
std::string explanation_text(const Explanation& explanation);
/// The same as one JSON object, on one line.
std::string explanation_json(const Explanation& explanation);

}  // namespace lockstep::trace
