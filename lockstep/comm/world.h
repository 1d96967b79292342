#pragma once

// How a program becomes a rank of a job.
//
//   auto world = lockstep::init();   // under lockstep run, torchrun, mpirun, srun, or alone

#include <chrono>
#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::comm {

enum class BindTo { none, core };

struct InitOptions {
  /// How long a wait for a peer may last before the group is given up.
  std::chrono::milliseconds timeout = base::kDefaultTimeout;
  /// Computing threads of this rank. Part of the arithmetic: another number gives other bits.
  /// OMP_NUM_THREADS is not consulted, since launchers set it differently. 0: left as it is.
  int threads = 1;
  /// core: this thread and its computing threads stay on cores of their own among those that the process may use, in
  /// the order of local ranks; UsageError when these do not suffice (base/core_binding.h). The caller's other threads
  /// share them, unless they were started before or call base::leave_own_cores(), as the loader's do.
  BindTo bind_to = BindTo::none;
};

class World {
 public:
  World(rendezvous::Place place, std::shared_ptr<Group> group) : place_(std::move(place)), group_(std::move(group)) {}

  int rank() const { return place_.rank; }
  int size() const { return place_.world_size; }
  int local_rank() const { return place_.local_rank; }
  const rendezvous::Place& place() const { return place_; }
  /// All ranks of the job. Shared: it lives as long as anybody uses it.
  const std::shared_ptr<Group>& group() const { return group_; }

 private:
  rendezvous::Place place_;
  std::shared_ptr<Group> group_;
};

/// Joins the job that the environment describes (see rendezvous/environment.h); returns when
/// all ranks have. UsageError when the environment is incomplete; GroupAborted when a rank
/// fails or does not come in time.
World init(InitOptions options = {});

}  // namespace lockstep::comm

namespace lockstep {
using comm::BindTo;
using comm::init;
using comm::InitOptions;
using comm::World;
}  // namespace lockstep
