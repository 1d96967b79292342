#pragma once

// What a rank leaves of its last collectives when its group ends: the content of a trace file. Torch-free.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::trace {

struct Call;

inline constexpr int kTraceVersion = 1;

/// A collective, or a message where peer is not -1 (flight_recorder.h has the same fields).
struct TracedCall {
  std::uint64_t number = 0;
  int group = 0;  ///< which of RankTrace::groups
  std::string kind;
  std::string dtype;
  std::vector<std::int64_t> sizes;
  std::int64_t elements = 0;
  std::string detail;  ///< "op sum"; empty: none
  std::string label;   ///< "bucket 3"; empty: none
  std::string phase;
  std::uint64_t step = 0;
  int peer = -1;           ///< in the world
  std::int64_t begin = 0;  ///< microseconds since the epoch
  std::int64_t end = 0;    ///< 0: it had not ended
  bool operator==(const TracedCall&) const = default;
};

/// A call as it is told, without times and group. Pure.
TracedCall told_call(const Call& call);

struct TracedGroup {
  std::string name;        ///< "world", "world/1": the first that was made of it
  std::vector<int> ranks;  ///< their numbers in the world
  bool operator==(const TracedGroup&) const = default;
};

struct RankTrace {
  std::string run;  ///< the same in all ranks of a run
  int attempt = 0;
  int rank = 0;  ///< in the world
  int world = 1;
  std::string host;
  int pid = 0;
  std::int64_t time = 0;   ///< when it was written: microseconds since the epoch
  std::uint64_t step = 0;  ///< where the rank was then
  std::string phase;
  std::optional<Failure> failure;   ///< why the group ended, as this rank has heard
  std::uint64_t begun = 0;          ///< calls so far, of which the last are kept
  std::vector<TracedGroup> groups;  ///< those that the rank is in
  std::vector<TracedCall> calls;    ///< in the order in which they began
};

/// The text of a file: JSON, a call a line. Pure. Bytes that are not UTF-8 become U+FFFD.
std::string format_trace(const RankTrace& trace);

/// The other way round. UsageError, one line that begins with `name`, for what is no whole trace: text cut short,
/// another version, numbers out of range, ranks that are none, groups that are not there, or that
/// the rank is not in.
RankTrace parse_trace(std::string_view text, const std::string& name);

}  // namespace lockstep::trace
