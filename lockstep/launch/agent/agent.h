#pragma once

// The agent: the process that starts a node's workers, watches them and ends them.
//
// Promises, whatever happens to workers or agent (docs/design/launch.md):
//   - the exit code is that of the first failure, 128 + n for signal n, 0 when all did well;
//   - no worker and no process that stays in a worker's process group outlives the agent;
//   - the first failure is told once, on stderr; those who fell after it are counted;
//   - after a failure all workers are started again, up to max_restarts times, and only when no
//     process of the attempt before is left.

#include "lockstep/launch/plan.h"

namespace lockstep::launch {

/// Runs the job and returns its exit code. It takes the process over: plan.signals and SIGCHLD are
/// read by its event loop (the first of plan.signals goes to the workers as it is and starts the
/// grace period, the second ends everything at once), and orphans of its workers become its children. Call it once,
/// from the main thread of a process that has no other threads and no other children. Throws UsageError (workers out of
/// range, a report that cannot be written), Error (no process, no memory to be had).
int run_agent(const Plan& plan);

}  // namespace lockstep::launch
