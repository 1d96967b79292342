#pragma once

// Starting one worker process.

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/workers/signals.h"

namespace lockstep::launch {

struct Process {
  pid_t pid = -1;
  base::UniqueFd pidfd;  ///< readable when the process has ended
};

/// What a new worker takes over from the agent.
struct SpawnContext {
  const Signals& signals;
  rlimit descriptors{};  ///< RLIMIT_NOFILE
  int reaper_pipe = -1;  ///< where the worker announces its process group
  bool stdin_is_terminal = false;
  int stdout_fd = -1;  ///< what becomes the worker's stdout; -1: the agent's
  int stderr_fd = -1;
  const cpu_set_t* cores = nullptr;  ///< to which the worker keeps; nullptr: to the agent's
};

/// The cores of the plan for a worker; nothing: it is not bound. Those beyond the kernel's 1024th are left out.
std::optional<cpu_set_t> cores_of_worker(const Plan& plan, int local_rank);

/// The program could not be executed.
struct ExecFailure {
  int error = 0;  ///< errno of execve; 0: it runs
};

/// Starts `arguments` (file `program`) with `environment` as the leader of a new session and process
/// group, with no descriptors but the standard ones; it dies with this thread. Returns when the new program runs, or
/// fills `failure` when it could not be executed (the process has ended then and is reaped). Throws Error when no
/// process can be made.
Process spawn(const std::string& program, const std::vector<std::string>& arguments, const Environment& environment,
              const SpawnContext& context, ExecFailure& failure);

}  // namespace lockstep::launch
