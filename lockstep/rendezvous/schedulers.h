#pragma once

// What a scheduler or an MPI launcher has put into the environment about the nodes of this job: `lockstep run
// --nnodes auto`. place_from_environment() is about ranks; this is about agents, of which each node has one.
//
// Looked for in this order, the first found decides:
//   OMPI_COMM_WORLD_RANK    Open MPI: the number of nodes where each has one task; no names
//   PMI_RANK                MPICH and what speaks its protocol: the same
//   SLURM_JOB_ID            SLURM: nodes by name; this node's rank inside a step of srun
//   PMIX_RANK               PMIx without any of these: that there are tasks, nothing of nodes
//   LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS, LSB_HOSTS
//                           LSF: nodes by name, and this node's rank by its own
//   PBS_NODEFILE            PBS Pro, OpenPBS, Torque: the same
//   KUBERNETES_SERVICE_HOST Kubernetes: this node's rank, JOB_COMPLETION_INDEX of an indexed job or the number at the
//                           end of a pod's name ("web-0", a stateful set); node 0 by name where the pod has a domain.
//                           A pod whose name has no number belongs to no job

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

/// A value and the variable or file that it was read from.
template <class T>
struct Told {
  T value{};
  std::string from;
};

/// The part of this job that its scheduler knows.
struct Allocation {
  std::string scheduler;  ///< "SLURM", "Open MPI", "MPICH", "PMIx", "LSF", "PBS", "Kubernetes"
  bool task = false;      ///< this process is a task, one of as many as the job has, not the job's script
  std::optional<Told<std::vector<std::string>>> names;  ///< of the nodes, node 0 first
  std::optional<Told<int>> nodes;
  std::optional<Told<int>> node_rank;
  std::optional<Told<int>> local_tasks;   ///< processes that the scheduler has started or means to start on this node
  std::optional<Told<std::string>> host;  ///< name of node 0, where the others can meet
};

/// What of this machine the answer depends on.
struct Surroundings {
  GetEnv get;
  /// The content of a file; nothing when it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read;
  std::string host_name;  ///< as gethostname() tells it
  std::string full_name;  ///< with the domain, where the resolver knows one; else empty
};

/// Nothing when no scheduler has started this process. Pure. Throws UsageError, naming variable or file, the value and
/// what would be right, for values that are no numbers, out of range, malformed or contradict each other.
std::optional<Allocation> find_allocation(const Surroundings& here);

/// The same of this process.
std::optional<Allocation> find_allocation();

/// Whether a scheduler has started this process as one of its tasks: by the variables of OMPI, MPICH, a SLURM step,
/// PMIx.
bool is_task(const GetEnv& get);

/// An agent is the only one of its node. Pure. Throws UsageError where this one is one of several tasks there. `asked`:
/// --nnodes as the user gave it.
void require_one_task_a_node(const Allocation& job, const std::string& asked);

/// The nodes of a job whose number the user leaves to the scheduler.
struct AutoNodes {
  int nodes = 1;
  int node_rank = 0;
  std::string host;     ///< where the agents meet; empty: one node, or the scheduler does not tell
  std::string because;  ///< "SLURM: 4 nodes (SLURM_STEP_NUM_NODES), this is node 2 (SLURM_NODEID), ...", for a log line
};

/// What --nnodes auto means. Pure. `nodes` is the number that the user gave instead; 0: none. The scheduler may have
/// told another one: a job may have fewer nodes than it was granted.
/// Throws UsageError where the scheduler has not told enough: it names the missing part and how to give it.
AutoNodes resolve_auto_nodes(const std::optional<Allocation>& allocation, int nodes = 0);

}  // namespace lockstep::rendezvous
