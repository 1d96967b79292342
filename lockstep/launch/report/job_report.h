#pragma once

// The report of a job for machines (--report FILE): one JSON object. docs/guide/launching.md
// lists its fields.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/output/last_lines.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/report/verdict.h"

namespace lockstep::launch {

/// One attempt: a start of all workers, until the last of them has ended.
struct AttemptRecord {
  std::int64_t generation = 0;  ///< of the job over several nodes
  NodePlace node;
  int restart_count = 0;
  int master_port = 0;
  double started = 0;            ///< seconds since the epoch
  double seconds = 0;            ///< until all had ended
  std::vector<End> ends;         ///< in order of time
  std::optional<Verdict> first;  ///< the first failure, if it was on this node
  std::string first_elsewhere;   ///< else what is said of it; empty: there was none
  std::optional<Whereabouts> where;
  std::vector<LogTail> log;      ///< of the worker that failed first
  std::string launcher_failure;  ///< what of the launcher's own failed and ended the attempt; empty: nothing
  std::string next;              ///< what was done then: "finish", "restart", "new_port"
};

struct JobRecord {
  std::string version;  ///< of lockstep
  std::string run_id;
  std::string host;
  std::string outcome;  ///< "succeeded", "failed", "stopped" (by a signal, to the agent or to a worker that then ended
                        ///< with kExitStopped), "not started"
  std::string stop_signal;    ///< "SIGTERM" when stopped
  std::string start_failure;  ///< why no worker could be started
  int exit_code = 0;
  double started = 0;  ///< seconds since the epoch
  double seconds = 0;
  std::vector<AttemptRecord> attempts;
};

/// Throws UsageError when the report could not be written to `path`: before anything runs.
void check_report_file(const std::string& path);

/// Writes it whole or not at all, through a symbolic link to the file it names. What is no file of
/// its own (below /dev or /proc, a pipe) is written to as it is. Throws Error, UsageError.
void write_report_file(const std::string& path, const std::string& text);

/// Pure. Ranks are the job's. Text that is not UTF-8 is repaired by U+FFFD.
std::string to_json(const JobRecord& job, const Plan& plan);

}  // namespace lockstep::launch
