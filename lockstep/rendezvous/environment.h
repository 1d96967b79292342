#pragma once

// A process's place in the job, read from what its launcher put into the environment.
//
// Looked for in this order, the first found decides:
//   RANK ...                the torchrun contract: torchrun, our own launcher, or by hand
//   OMPI_COMM_WORLD_RANK    Open MPI's mpirun
//   PMI_RANK                MPICH's mpiexec
//   SLURM_PROCID            srun. Inside a job step only: a script under plain sbatch also has
//                           SLURM_ variables, but is one process, alone
//   none of them            alone: a world of one

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

struct Place {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string launcher = "alone";  ///< "lockstep", "torchrun", "mpirun", "srun", "hand" (init_method.h) or "alone"
  std::string job_key;             ///< names this run and attempt on this node; empty when alone
  std::string segment_path;        ///< LOCKSTEP_SEGMENT; empty when no agent of ours made one
  std::string master_addr;         ///< MASTER_ADDR: where ranks of several nodes meet; rank 0's machine
  int master_port = 0;             ///< MASTER_PORT, free there unless it is the launcher's store's
  bool store_at_master = false;    ///< TORCHELASTIC_USE_AGENT_STORE: torchrun's agent has its store at MASTER_PORT
  std::string agent_store;         ///< LOCKSTEP_AGENT_STORE: where our agents' store is reached (agent_store.h)
  std::string socket_interface;    ///< socket_interface(); where ranks are on several nodes
  std::string meeting_key;         ///< names this run on all nodes; empty on one
  std::string meeting_file;        ///< where rank 0 writes its address, in the place of master_addr (address_file.h)
  bool nodes_known = true;         ///< else the ranks ask each other who shares a node (comm/network/roll_call.h)
  int restart_count = 0;           ///< how often the launcher has restarted the job
};

/// Returns a variable's value, or null when it is not set. An empty value counts as not set.
using GetEnv = std::function<const char*(const char*)>;

/// The network interface that is asked for: LOCKSTEP_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME's first; empty: none. Pure.
std::string socket_interface(const GetEnv& get);

/// Pure. Throws UsageError, naming variable and value, when a launcher's variables are
/// incomplete, no numbers, or out of range. Where ranks are on several nodes, MASTER_ADDR and
/// MASTER_PORT say where they meet, under any launcher: UsageError without them. A launcher's store is looked for only
/// then, and with `over_network`: the ranks meet there even where all are on one node.
Place place_from_environment(const GetEnv& get, bool over_network = false);

/// The same from this process's environment.
Place place_from_environment();

/// Adds to a job without a name what its ranks on this node share: MPICH names none.
void name_job(Place& place);

/// How many tasks node `node` has by SLURM's list, "2(x3),1" = 2, 2, 2, 1.
/// Throws UsageError when the list is malformed or shorter.
int slurm_tasks_on_node(std::string_view list, int node);

}  // namespace lockstep::rendezvous
