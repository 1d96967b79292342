#pragma once

// What a job is, before any process is started: plain data and pure functions.

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::launch {

struct Plan {
  std::vector<std::string> command;         ///< program (a path, or a name looked up in PATH) and its arguments
  int workers = 1;                          ///< processes on this node
  std::chrono::milliseconds grace{10'000};  ///< from SIGTERM to SIGKILL; longer when workers save a lot at the end
};

/// What all workers of one attempt have in common.
struct Attempt {
  std::string run_id;        ///< TORCHELASTIC_RUN_ID
  int master_port = 0;       ///< free on 127.0.0.1 when the attempt began
  std::string segment_path;  ///< the agent's segment
  int cores = 1;             ///< cores the job may use
};

using Environment = std::vector<std::string>;  ///< "NAME=value"

/// This process's environment.
Environment this_environment();

/// The environment of worker `local_rank` on one node: `inherited`, with torchrun's variables
/// and LOCKSTEP_SEGMENT set anew, and OMP_NUM_THREADS (cores by workers, at least 1) where
/// `inherited` has none.
Environment worker_environment(const Environment& inherited, const Plan& plan, const Attempt& attempt, int local_rank);

/// The command to execute for what the user typed: a program whose name ends in .py is run by
/// the python3 in PATH, unbuffered as torchrun does; anything else is executed itself.
std::vector<std::string> resolve_command(std::vector<std::string> typed);

/// Where `program` is found as execvp finds it, or empty. A name with a slash is itself.
std::string find_program(const std::string& program, const std::string& path_variable);

}  // namespace lockstep::launch
