#pragma once

// All workers of one attempt: how they are started, watched and ended. One event loop over a
// descriptor per worker and one for signals; nothing is polled (docs/design/launch.md).

#include <sys/resource.h>

#include <chrono>
#include <string>

#include "lockstep/base/control_page.h"
#include "lockstep/base/outlet.h"
#include "lockstep/launch/attempt_logs.h"
#include "lockstep/launch/job_report.h"
#include "lockstep/launch/out_of_memory.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/reaper.h"
#include "lockstep/launch/signals.h"

namespace lockstep::launch {

/// What outlives an attempt.
struct GroupContext {
  const Plan& plan;
  base::ControlPage& page;
  const Signals& signals;
  Reaper& reaper;
  AttemptLogs& logs;
  OutOfMemoryWatch& out_of_memory;
  base::Outlet& console;  ///< where the agent speaks; never waited for while workers live
  rlimit descriptors{};   ///< RLIMIT_NOFILE of the workers
};

struct GroupResult {
  AttemptRecord record;
  int code = 0;                         ///< what the job would exit with now
  int stop_signal = 0;                  ///< the signal that asked the agent to end the job
  bool never_ran = false;               ///< the program could not be executed; start_failure says why
  std::string start_failure;            ///< why not all workers could be started
  bool cut_short = false;               ///< somebody would not wait for the grace period
  bool left_behind = false;             ///< some process could not be killed
  std::chrono::milliseconds uptime{0};  ///< from the start to the first failure, or to the end
};

/// Starts the workers and returns when no process is left in any of their groups. Prints the first
/// failure when it happens. Throws Error when the system fails the agent; all workers are killed then.
GroupResult run_worker_group(const GroupContext& context, const Attempt& attempt);

}  // namespace lockstep::launch
