#include "lockstep/rendezvous/environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/agent_store.h"
#include "lockstep/rendezvous/variable_reader.h"

namespace lockstep::rendezvous {
namespace {

// The four variables by which each launcher tells the place.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

Place read_place(const VariableReader& read, const Names& names) {
  Place place;
  place.world_size = read.number(names.world_size, 1);
  place.rank = read.number(names.rank, 0, place.world_size - 1);
  place.local_world_size = read.number(names.local_world_size, 1, place.world_size);
  place.local_rank = read.number(names.local_rank, 0, place.local_world_size - 1);
  return place;
}

Place torchrun_place(const GetEnv& get, bool over_network) {
  const VariableReader read(get, "torchrun or lockstep run");
  Place place = read_place(read, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  // With --virtual-local-rank every LOCAL_RANK is 0. On one node the ranks are the local ranks.
  if (place.local_world_size == place.world_size) place.local_rank = place.rank;
  place.restart_count = read.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  place.segment_path = read.text("LOCKSTEP_SEGMENT").value_or("");
  place.launcher = place.segment_path.empty() ? "torchrun" : "lockstep";
  // A port is one job's at a time, and torchrun takes a new run id or attempt for a new try.
  if (place.world_size > 1 || read.has("MASTER_PORT"))
    place.job_key = "torchrun " + read.text("MASTER_ADDR").value_or("") + ":" + read.required_text("MASTER_PORT") +
                    " " + read.text("TORCHELASTIC_RUN_ID").value_or("none") + " " + std::to_string(place.restart_count);
  if (place.local_world_size < place.world_size || over_network) {
    // What is the same on all nodes: with torchrun each counts its own restarts.
    place.meeting_key = read.text("TORCHELASTIC_RUN_ID").value_or("none");
    place.job_key += " node " + read.text("GROUP_RANK").value_or("");  // two may be on one machine
    place.store_at_master = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.agent_store = agent_store_name(get);
  }
  return place;
}

Place open_mpi_place(const GetEnv& get) {
  const VariableReader read(get, "mpirun (Open MPI)");
  Place place = read_place(read, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE"});
  place.launcher = "mpirun";
  std::string job;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"})
    if (job.empty()) job = read.text(name).value_or("");
  if (job.empty()) job = read.required_text("PMIX_NAMESPACE");
  place.job_key = place.meeting_key = "openmpi " + job;
  return place;
}

Place mpich_place(const GetEnv& get) {
  const VariableReader read(get, "mpiexec (MPICH)");
  Place place = read_place(read, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  place.launcher = "mpirun";
  // MPICH names no job; name_job() adds what the ranks of a node share.
  place.job_key = place.meeting_key = "mpich";
  return place;
}

Place slurm_place(const GetEnv& get) {
  const VariableReader read(get, "srun");
  Place place;
  const char* tasks = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  place.world_size = read.number(tasks, 1);
  place.rank = read.number("SLURM_PROCID", 0, place.world_size - 1);
  place.local_world_size = slurm_tasks_on_node(
      read.required_text(read.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE"),
      read.number_or("SLURM_NODEID", 0));
  place.local_rank = read.number("SLURM_LOCALID", 0, place.local_world_size - 1);
  place.restart_count = read.number_or("SLURM_RESTART_COUNT", 0);
  place.launcher = "srun";
  const std::string step = read.text("SLURM_STEP_ID").value_or(read.text("SLURM_STEPID").value_or(""));
  place.job_key = place.meeting_key =
      "slurm " + read.required_text("SLURM_JOB_ID") + "." + step + " " + std::to_string(place.restart_count);
  return place;
}

// mpirun and srun tell no port, so whoever starts them over several nodes says where the ranks meet, as torch's env://.
void read_meeting(const VariableReader& read, Place& place) {
  if (!read.has("MASTER_ADDR") || !read.has("MASTER_PORT"))
    throw UsageError("environment: " + std::to_string(place.local_world_size) + " of " +
                     std::to_string(place.world_size) + " ranks are on this node, and " + place.launcher +
                     " does not say where those of several nodes meet: give all ranks MASTER_ADDR, rank 0's machine, "
                     "and MASTER_PORT, free there; or start them by lockstep run");
  place.master_addr = read.required_text("MASTER_ADDR");
  place.master_port = read.number("MASTER_PORT", 1, 65535);
  place.meeting_key += " " + std::to_string(place.master_port);
}

// A half-set contract must not read as "alone": four processes would each train a model.
void refuse_half_a_contract(const GetEnv& get) {
  const VariableReader read(get, "torchrun");
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK"})
    if (read.has(name))
      throw UsageError("environment: " + std::string(name) + "=" + *read.text(name) +
                       " is set but RANK is not: set both, or neither for a process on its own");
}

}  // namespace

int slurm_tasks_on_node(std::string_view list, int node) {
  const auto wrong = [&] {
    return UsageError("environment: SLURM_STEP_TASKS_PER_NODE=" + std::string(list) +
                      " has no number of tasks for node " + std::to_string(node) + " (expected for example 2(x3),1)");
  };
  std::int64_t first = 0;  // the node at which the entry begins
  for (const char *at = list.data(), *end = at + list.size(); at != end;) {
    int tasks = 0;
    auto parsed = std::from_chars(at, end, tasks);
    if (parsed.ec != std::errc() || tasks < 1) throw wrong();
    at = parsed.ptr;
    int nodes = 1;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      parsed = std::from_chars(at + 2, end, nodes);
      if (parsed.ec != std::errc() || nodes < 1 || parsed.ptr == end || *parsed.ptr != ')') throw wrong();
      at = parsed.ptr + 1;
    }
    if (node < first + nodes) return tasks;
    first += nodes;
    if (at != end && *at++ != ',') throw wrong();
  }
  throw wrong();
}

std::string socket_interface(const GetEnv& get) {
  const VariableReader read(get, "");
  if (const auto ours = read.text("LOCKSTEP_SOCKET_IFNAME")) return *ours;
  const std::string gloo = read.text("GLOO_SOCKET_IFNAME").value_or("");
  return gloo.substr(0, gloo.find(','));
}

Place place_from_environment(const GetEnv& get, bool over_network) {
  const VariableReader read(get, "the launcher");
  const bool in_slurm_step = read.has("SLURM_PROCID") && (read.has("SLURM_STEP_ID") || read.has("SLURM_STEPID"));
  Place place;
  if (read.has("RANK"))
    place = torchrun_place(get, over_network);
  else if (read.has("OMPI_COMM_WORLD_RANK"))
    place = open_mpi_place(get);
  else if (read.has("PMI_RANK") && (read.has("MPI_LOCALRANKID") || !in_slurm_step))  // srun's pmi2 sets PMI_RANK too
    place = mpich_place(get);
  else if (in_slurm_step)
    place = slurm_place(get);
  else
    refuse_half_a_contract(get);
  if (place.local_world_size != place.world_size || (over_network && place.world_size > 1)) {
    read_meeting(read, place);
    place.socket_interface = socket_interface(get);
  } else {
    place.meeting_key.clear();
  }
  return place;
}

Place place_from_environment() {
  Place place = place_from_environment([](const char* name) { return ::getenv(name); });
  name_job(place);
  return place;
}

// The ranks that one mpiexec started on a node are children of one proxy process.
void name_job(Place& place) {
  if (place.job_key == "mpich") place.job_key += " " + std::to_string(getppid());
}

}  // namespace lockstep::rendezvous
