#pragma once

// The flags of `lockstep run` and `lockstep launch`: torchrun's, under torchrun's names, and a
// few of ours. docs/guide/launching.md compares them one by one.
//
// A flag may be written with dashes or underscores. One that is not on the command line is looked
// for in the environment, as PET_<NAME>; switches there are 0 or 1.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/flags/parse.h"
#include "lockstep/launch/plan.h"

namespace lockstep::launch {

/// Which command's flags: `lockstep run` is torchrun, `lockstep launch` is
/// torch.distributed.launch, whose scripts get --local-rank=N as their first argument unless
/// --use-env is given.
enum class Dialect { run, launch };

/// What the flags say about the job's nodes.
struct NodeOptions {
  NodesSettings settings;     ///< number of nodes, key
  bool by_scheduler = false;  ///< --nnodes auto: number, rank and meeting place are settled when it is asked
  int rank = -1;              ///< --node-rank; -1: not given, and 0 unless a scheduler tells
  std::vector<std::pair<std::string, std::string>> conf;  ///< --rdzv-conf, where `conf_name` says it
  std::string conf_name;
};

/// The flags as typed, checked one by one.
struct Options {
  std::string nproc_per_node = "1";  ///< a number, or auto, cpu, gpu
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id;
  bool standalone = false;
  NodeOptions nodes;
  std::string master_addr;
  int master_port = 0;
  std::string local_addr;
  std::string hosts;      ///< --hosts: a list, or a file
  std::string discovery;  ///< --host-discovery-script
  std::string remote_shell = "ssh";
  std::vector<std::string> exports;  ///< -x: NAME or NAME=VALUE
  bool by_starter = false;           ///< this is an agent that --hosts has started
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string numa_binding;
  bool use_env = false;
  bool dry_run = false;
  std::vector<std::string> typed;  ///< the program and its arguments
  Plan plan;                       ///< what needs no second look
};

/// What the flags are measured by.
struct Machine {
  std::string host;
  int cores = 1;  ///< that the job may use
  int gpus = 0;   ///< that the job may see
  int numa_nodes = 1;
  std::vector<std::vector<int>> gpu_cores;              ///< near each of the GPUs; empty, or one of them: not known
  std::function<bool(const std::string&)> has_address;  ///< whether a name or address is this machine's
  std::string python;                                   ///< the Python that runs scripts; empty: there is none
};

/// Options, or the help that was asked for instead.
struct Parsed {
  Options options;
  std::string text;  ///< not empty: print it to stdout and exit 0; `options` means nothing then
};

/// Reads what stands after `lockstep run`. Options end at the first word that is none, or at "--". Pure. Throws
/// UsageError, naming the flag or the variable and its value.
Parsed parse_options(Dialect dialect, const std::vector<std::string>& arguments, const flags::GetEnv& get);

/// The plan that the flags ask for on this machine. Pure. Throws UsageError for what cannot be
/// done here: other rendezvous backends, a meeting place elsewhere for one node, GPUs that are not there.
Plan make_plan(const Options& options, Dialect dialect, const Machine& machine);

/// This machine.
Machine this_machine();

}  // namespace lockstep::launch
