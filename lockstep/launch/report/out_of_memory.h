#pragma once

// Whether the kernel killed a worker for want of memory. A SIGKILL does not tell who sent it;
// the kernel's log and its counters do.

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/control_group.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// What is known about the time from a watch's beginning to a worker's end.
struct OutOfMemoryEvidence {
  base::OutOfMemoryCounts before;
  base::OutOfMemoryCounts after;
  /// The kernel's records of that time. Nothing: it may not be read, or names processes by
  /// other numbers than ours (inside a container).
  std::optional<std::string> kernel_log;
  std::optional<std::uint64_t> limit;  ///< the least memory limit of the control groups, bytes
};

/// "out of memory: the kernel killed it (memory limit of its control group: 2.0 GiB)" or "...
/// (the machine is out of memory)"; nothing when no evidence says so. Pure.
///
/// The log decides where it names the process. Counters decide as far as the log does not
/// account for what they count; they cannot tell two processes of one group apart.
std::optional<std::string> explain_kill(const OutOfMemoryEvidence& evidence, int pid, int signal);

/// How many kills the counters know of that the log does not tell (yet). Pure.
std::uint64_t untold_kills(const OutOfMemoryEvidence& evidence);

/// Sees the kills between its making and a question. Costs a few small files to make; nothing
/// while it waits. One thread.
class OutOfMemoryWatch {
 public:
  OutOfMemoryWatch();
  /// Forgets what has been; call it when a kill was explained, before the next can happen.
  void reset();
  /// About a worker of this process's control group that a signal has ended. Takes 50 ms at
  /// most, and that only when the kernel has counted a kill but not logged it yet.
  std::optional<std::string> explain(int pid, int signal);

 private:
  bool nobody_was_killed() const;
  void read_log();

  base::UniqueFd log_;  // none: see OutOfMemoryEvidence::kernel_log
  std::string told_;
  base::OutOfMemoryCounts before_;
};

}  // namespace lockstep::launch
