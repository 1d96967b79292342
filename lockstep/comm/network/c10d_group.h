#pragma once

// A group over any c10d::Backend, for programs that have one: a library's for torch.distributed, or libtorch's own with
// options that lockstep::init() does not give.
//
//   auto group = lockstep::over_backend(backend, *store);
//   auto world = lockstep::init({.group = group});

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/base/node.h"
#include "lockstep/comm/group.h"

namespace lockstep::comm {

struct OverBackendOptions {
  /// As those of InitOptions (world.h).
  std::chrono::milliseconds timeout = base::kDefaultTimeout;
  std::chrono::milliseconds stall_warning{10'000};
  bool check_calls = true;
};

/// Called by all ranks of the backend, each of which counts as a node of its own. Collectives and messages are those of
/// every group over a network, made of the backend's send() and recv() (c10d_streams.h says what is asked of it): the
/// bits, the deadlines and the words are ours. What ranks tell of failures goes by connections of theirs, by TCP at the
/// address that LOCKSTEP_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names, else at that by which a rank reaches rank 0.
///
/// `store` is read and written until all have met, under keys that begin with "lockstep/over_backend/", where nothing
/// may be from a time before: give one of this group's own, or a c10d::PrefixStore. Error naming a rank that does not
/// come within the timeout; UsageError as of make_mesh() (tcp_mesh.h), and for libtorch's MPI: while somebody waits for
/// a message nobody else can call it. init({.backend = "mpi"}) takes MPI without it.
[[nodiscard]] std::shared_ptr<Group> over_backend(c10::intrusive_ptr<c10d::Backend> backend, c10d::Store& store,
                                                  const OverBackendOptions& options = {});

}  // namespace lockstep::comm
