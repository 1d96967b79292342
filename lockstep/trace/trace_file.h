#pragma once

// The files of a run's ranks: where they are, and what belongs together.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/trace/rank_trace.h"

namespace lockstep::trace {

/// "trace_attempt_0_rank_3.json".
std::string trace_file_name(int attempt, int rank);

/// Writes the file `folder`/trace_file_name(), whole or not at all; makes the folder where it is missing. UsageError,
/// Error.
void write_trace(const std::string& folder, const RankTrace& trace);

/// UsageError, one line naming two files, unless all are of one run, attempt and world, have the same groups, and no
/// rank twice. `files` are their names. Pure.
void check_together(const std::vector<RankTrace>& traces, const std::vector<std::string>& files);

/// Reads files, and those named as above that lie in folders or below, by rank. `attempt`: of folders, those of this
/// one alone; without it a folder that has those of several is a UsageError. UsageError for what cannot be read, is
/// none, or does not belong together, and where there is none.
std::vector<RankTrace> read_traces(const std::vector<std::string>& paths, std::optional<std::int64_t> attempt = {});

}  // namespace lockstep::trace
