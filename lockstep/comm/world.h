#pragma once

// How a program becomes a rank of a job.
//
//   auto world = lockstep::init();   // under lockstep run, torchrun, mpirun, srun, or alone
//   auto world = lockstep::init({.init_method = "tcp://node0:29500", .rank = 1, .world_size = 4});   // by hand
//   world.all_reduce(tensor);

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/comm/point_to_point.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::comm {

enum class BindTo { none, core };

struct InitOptions {
  /// Where the ranks meet: "env://", "tcp://host:port" or "file:///path" (rendezvous/init_method.h).
  std::string init_method = "env://";
  /// Who this is among how many; with env:// they take the place of RANK and WORLD_SIZE. -1: not given.
  int rank = -1;
  int world_size = -1;
  /// What carries the bytes. "auto", or "hierarchical": shared memory within a node, TCP between nodes, collectives in
  /// both, one after the other. "shm": all ranks must be on one node. "tcp": messages between all ranks, on a node too.
  /// "mpi": the same on one node, through the MPI that has started the ranks; over several as "auto", with MPI in
  /// TCP's place. "gloo": as "mpi", through libtorch's Gloo, under any launcher (network/gloo_streams.h). "nccl": as
  /// "auto", and tensors of GPUs by NCCL (nccl/nccl_group.h). "ipc": as "shm", and tensors of GPUs by memory that the
  /// GPUs share (ipc/ipc_group.h); with the others those go through the host's.
  std::string backend = "auto";
  /// How long a wait for a peer may last before the group is given up.
  std::chrono::milliseconds timeout = base::kDefaultTimeout;
  /// How long it may last before it is told on standard error for whom, by whom and in which collective; who is late on
  /// the same node then writes its stack, by a handler of SIGURG where the program has none (base/stack_on_request.h).
  /// 0: neither.
  std::chrono::milliseconds stall_warning{10'000};
  /// Computing threads of this rank. Part of the arithmetic: another number gives other bits.
  /// OMP_NUM_THREADS is not consulted, since launchers set it differently. 0: left as it is.
  int threads = 1;
  /// core: this thread and its computing threads stay on cores of their own among those that the process may use, in
  /// the order of local ranks; UsageError when these do not suffice (base/core_binding.h). The caller's other threads
  /// share them, unless they were started before or call base::leave_own_cores(), as the loader's do.
  BindTo bind_to = BindTo::none;
  /// A group of one's own (comm/group.h), which all ranks have joined already. Its topology says who this rank is; the
  /// environment is not read, `timeout` is the group's own affair, and nothing may say where ranks meet. Null: the
  /// group of the job that `init_method` describes.
  std::shared_ptr<Group> group = nullptr;
  /// The folder in which each rank leaves its last collectives when the group ends early, for `lockstep trace`; empty:
  /// that of the environment (comm/traced_group.h). Not of a group of one's own.
  std::string trace_dir = "";
  /// Whether local rank 0 says in a line on standard error that the ranks of its node leave cores idle.
  bool idle_cores_hint = true;
  /// Whether what the ranks call is compared, in each collective and message, so that a mismatch is an Error that names
  /// both sides before a byte is used. false, or LOCKSTEP_CHECK_CALLS=0: it is not looked for, and what comes of one is
  /// other values, a wait until `timeout`, or the end of the process. Of this rank. Not of a group of one's own.
  bool check_calls = true;
};

class World {
 public:
  World(rendezvous::Place place, std::shared_ptr<Group> group) : place_(std::move(place)), group_(std::move(group)) {}

  int rank() const { return place_.rank; }
  int size() const { return place_.world_size; }
  int local_rank() const { return place_.local_rank; }
  const rendezvous::Place& place() const { return place_; }
  /// Names the run, the same in all its attempts and in no other (rendezvous/run_id.h).
  std::string run_id() const;
  /// How often it was started before: by `lockstep run` of this rank's node, those starts too that cost no restart (a
  /// node has come); by another launcher its restarts, which torchrun does not count where nodes come and go.
  int attempt() const;
  /// All ranks of the job. Shared: it lives as long as anybody uses it.
  const std::shared_ptr<Group>& group() const { return group_; }

  /// The collectives of group(); comm/group.h says what each does.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) const { group_->all_reduce(tensor, op); }
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::sum) const {
    group_->reduce_scatter(output, input, op);
  }
  void all_to_all(const at::Tensor& output, const at::Tensor& input) const { group_->all_to_all(output, input); }
  void broadcast(const at::Tensor& tensor, int root = 0) const { group_->broadcast(tensor, root); }
  [[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& tensor) const {
    return group_->all_gather(tensor);
  }
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) const {
    group_->all_gather_into_tensor(output, input);
  }
  /// comm/point_to_point.h
  void send(const at::Tensor& tensor, int peer, int tag = 0) const { comm::send(*group_, tensor, peer, tag); }
  void recv(const at::Tensor& tensor, int peer, int tag = 0) const { comm::recv(*group_, tensor, peer, tag); }
  void barrier() const { group_->barrier(); }
  [[nodiscard]] at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) const {
    return group_->shared_empty(sizes, dtype);
  }

 private:
  rendezvous::Place place_;
  std::shared_ptr<Group> group_;
};

/// Joins the job that the options describe, by default that of the environment (rendezvous/environment.h), or takes the
/// group of the options; returns when all ranks have. UsageError when options, environment or the topology of the
/// options' group are incomplete or make no sense, or ranks that were started by hand contradict each other; Error or
/// GroupAborted when a rank fails or does not come in time.
[[nodiscard]] World init(InitOptions options = {});

/// Whether calls are compared: unless `asked` is false or LOCKSTEP_CHECK_CALLS is 0. UsageError when that is anything
/// but empty, 0 or 1. Pure.
bool checks_calls(bool asked, const rendezvous::GetEnv& get);

/// What init() says when `ranks` of a node with `threads` computing threads each leave some of the `cores` that they
/// may use idle: one line, or nothing when they do not. Pure.
std::string idle_cores_hint(int ranks, int threads, int cores);

}  // namespace lockstep::comm

namespace lockstep {
using comm::BindTo;
using comm::init;
using comm::InitOptions;
using comm::ReduceOp;
using comm::World;
}  // namespace lockstep
