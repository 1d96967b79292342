#pragma once

// What the agent makes of the ends of its workers: pure functions.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/control_page.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/output/last_lines.h"
#include "lockstep/launch/report/error_file.h"

namespace lockstep::launch {

/// How a worker ended.
struct End {
  int rank = 0;  ///< on this node
  int pid = 0;
  int exit_code = 0;  ///< when no signal ended it
  int signal = 0;     ///< 0: it exited
  double when = 0;    ///< seconds since the epoch
  /// It did what it was asked to do: stopped before the end, all saved.
  bool stopped() const { return signal == 0 && exit_code == kExitStopped; }
  bool failed() const { return signal != 0 || (exit_code != 0 && !stopped()); }
};

/// Where a worker was, by its words on the control page.
struct Whereabouts {
  std::uint64_t step = 0;
  std::string phase;
};

/// "SIGKILL"; "signal 37" for one without a name.
std::string signal_name(int signal);

/// `text` up to its first line's end, at most 500 bytes, control characters replaced: they could do
/// anything to a terminal.
std::string one_line(const std::string& text);

/// "killed by SIGKILL", "exit code 3".
std::string describe(const End& end);

/// What a shell would say of it: the exit code, or 128 + signal.
int exit_code(const End& end);

/// The words of `rank`, or nothing when it has not joined the page's generation.
std::optional<Whereabouts> whereabouts(const base::ControlPage& page, int rank);

/// What the agent writes into the error slot for a worker's end.
Failure failure_of(const End& end, const std::optional<Whereabouts>& where);

/// When a worker wrote its error file.
struct Recorded {
  int rank = 0;
  double when = 0;  ///< seconds since the epoch
};

/// The first failure of a job.
struct Verdict {
  End end;                                   ///< of the worker that is to blame
  std::optional<Failure> told;               ///< what a worker wrote into the error slot, if one did
  bool still_running = false;                ///< the worker has told its failure but not ended by itself
  int code = 0;                              ///< the job's exit code
  std::optional<WorkerError> error;          ///< what its error file says
  std::optional<std::string> out_of_memory;  ///< why we believe that the kernel killed it for memory
};

/// By somebody else: the kernel, or a person. A follower may well abort, and the agent sends the others (SIGTERM ...).
bool was_killed(const End& end);

/// How long after a process was killed its end may be seen, in seconds: its memory is freed first.
inline constexpr double kSlowDeath = 2.0;

/// Who failed first. `ends` are in order of time, at least one of them failed; `told` is the
/// error slot if a worker wrote it; `recorded` the error files written so far. The rank that the
/// slot names was first, even when its peers, who only followed it, ended before it did. Else the
/// first in time, where a worker's time is that of its error file, and of its end if it wrote none;
/// one that a signal ended from outside (not SIGABRT, SIGTERM, SIGINT, SIGHUP) counts as kSlowDeath
/// earlier, for its peers see its sockets close before its end is seen.
Verdict first_failure(const std::vector<End>& ends, const std::optional<Failure>& told,
                      const std::vector<Recorded>& recorded = {});

/// Why it failed, in one line: what the worker said, or what is known of it. Empty: no more than
/// describe() says.
std::string cause(const Verdict& verdict);

/// Whether the worker that failed first says that the input is wrong: it would be so again.
bool is_bad_input(const Verdict& verdict);

/// The agent's message, lines ending in newlines. Empty when the worker has said it all:
/// wrong use or bad input (exit code 2), which it prints itself. `first_rank`: RANK of the node's first worker.
std::string report(const Verdict& verdict, const std::optional<Whereabouts>& where, const std::string& host,
                   int first_rank = 0);

/// What other nodes are told in place of an empty report(): they do not see what the worker has printed.
std::string report_of_bad_input(const Verdict& verdict, const std::string& host, int first_rank);

/// How many others of `ends` failed.
int count_followers(const Verdict& verdict, const std::vector<End>& ends);

/// "lockstep: 3 more ranks ended after it\n"; empty for none.
std::string report_followers(std::int64_t count);
/// "lockstep: 3 more ranks ended after it\n". Empty for none, and where report() is empty.
std::string report_followers(const Verdict& verdict, const std::vector<End>& ends);

/// "lockstep:   last lines of FILE:\n" and the lines, indented. Empty for none.
std::string describe_tails(const std::vector<LogTail>& tails);

}  // namespace lockstep::launch
