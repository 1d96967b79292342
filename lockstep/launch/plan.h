#pragma once

// What a job is, before any process is started: plain data and pure functions.

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launch/nodes/settings.h"
#include "lockstep/launch/output/logs.h"

namespace lockstep::launch {

/// Where this node is among those of a job. The job's ranks are counted through the nodes, in the order of theirs.
struct NodePlace {
  int rank = 0;         ///< GROUP_RANK
  int nodes = 1;        ///< GROUP_WORLD_SIZE
  int first_rank = 0;   ///< RANK of this node's first worker: the workers of the nodes before it
  int ranks_after = 0;  ///< the workers of the nodes after it
};

struct Plan {
  std::vector<std::string> command;         ///< program (a path, or a name looked up in PATH) and its arguments
  std::string script;                       ///< a file among the arguments that must be readable; empty: none
  int workers = 1;                          ///< processes on this node
  std::chrono::milliseconds grace{10'000};  ///< from SIGTERM to SIGKILL; longer when workers save a lot at the end
  int max_restarts = 0;                     ///< how often all workers may be started again after a failure
  std::vector<int> no_restart_codes;        ///< exit codes (128 + n for signal n) after which they are not
  std::string run_id;                       ///< TORCHELASTIC_RUN_ID; empty: a random one
  std::string master_addr = "127.0.0.1";    ///< MASTER_ADDR
  int master_port = 0;                      ///< MASTER_PORT; 0: a free one for each attempt
  bool virtual_local_rank = false;          ///< LOCAL_RANK is 0 and each worker sees one GPU
  std::vector<int> signals{SIGTERM, SIGINT, SIGHUP, SIGQUIT};  ///< what ends the job in good order
  LogOptions logs;                                             ///< where the output goes; logs.role is ROLE_NAME
  std::string report;                                          ///< the file for the report as JSON; empty: none
  NodePlace node;                                              ///< alone by default
  std::optional<NodesSettings> nodes;                          ///< how several nodes meet; none: one node
  int leash = -1;                                              ///< from which signals come, too (agent/leash.h)
  std::vector<std::vector<int>> worker_cores;  ///< to which each worker keeps; empty, or one of them: to all
  std::string state_saver;  ///< the program that saves what a job leaves (agent/state_saver.h); empty: nobody does
};

/// WORLD_SIZE: the workers of all nodes.
int world_size(const Plan& plan);

/// What all workers of one attempt have in common.
struct Attempt {
  std::string run_id;        ///< TORCHELASTIC_RUN_ID
  int restart_count = 0;     ///< attempts before this one
  int master_port = 0;       ///< free on this machine when the attempt began
  std::string segment_path;  ///< the agent's segment
  std::string store;         ///< where the workers reach the job's store; see rendezvous/agent_store.h
  int cores = 1;             ///< cores the job may use
};

using Environment = std::vector<std::string>;  ///< "NAME=value"

/// This process's environment.
Environment this_environment();

/// The value of `name` in `environment`, or empty.
std::string value_of(const Environment& environment, std::string_view name);

/// OMP_NUM_THREADS of each worker where the user has set none: cores by workers, at least 1.
int threads_per_worker(int cores, int workers);

/// "lockstep: OMP_NUM_THREADS=4 for each of 2 workers (8 cores)\n" where the launcher sets it for
/// more than one worker, else nothing.
std::string threads_note(const Plan& plan, const Environment& inherited, int cores);

/// The environment of worker `local_rank` of this node: `inherited`, with torchrun's variables and
/// LOCKSTEP_SEGMENT set anew, and OMP_NUM_THREADS where `inherited` has none. `error_file` becomes
/// TORCHELASTIC_ERROR_FILE. Throws UsageError when --virtual-local-rank meets a
/// CUDA_VISIBLE_DEVICES with too few entries.
Environment worker_environment(const Environment& inherited, const Plan& plan, const Attempt& attempt, int local_rank,
                               const std::string& error_file);

/// The command of worker `local_rank`: each "${local_rank}" in the arguments is replaced, as
/// torchrun does.
std::vector<std::string> worker_command(const std::vector<std::string>& command, int local_rank);

/// How a program is started.
enum class Start {
  by_name,  ///< Python for a name that ends in .py, else the program itself
  module,   ///< python -m
  python,   ///< Python, whatever its name
  program,  ///< the program itself
};

/// The command to execute for what the user typed. Python runs unbuffered (-u), as under torchrun.
std::vector<std::string> resolve_command(std::vector<std::string> typed, Start start, const std::string& python);

/// Where `program` is found as execvp finds it, or empty. A name with a slash is itself.
std::string find_program(const std::string& program, const std::string& path_variable);

}  // namespace lockstep::launch
