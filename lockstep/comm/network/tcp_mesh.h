#pragma once

// How ranks that share no memory find each other, and the connections that they make. Torch-free.
//
// Rank 0 listens at MASTER_ADDR and MASTER_PORT until all have come, tells each where the others listen, and closes
// that door again. Where the launcher has a store (meeting.h), it listens at a port of its own instead, and tells it
// there. Each rank listens on the one address by which it reaches rank 0, or on that of an interface, until the mesh is
// there.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/network/connections.h"

namespace lockstep::comm {

class Meeting;

/// Which rank this is, and where they meet.
struct MeshPlace {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  std::string host;  ///< of rank 0: MASTER_ADDR
  int port = 0;
  std::string interface;  ///< whose address this rank listens on; empty: that by which it reaches rank 0
  std::string key;        ///< of the job; who brings another one is a stranger
  std::shared_ptr<Meeting> meeting = nullptr;  ///< null: rank 0 listens at `port`
  std::chrono::milliseconds timeout{};
  std::chrono::milliseconds stall_warning{0};  ///< of the group's wire (wire.h), as the next
  bool check_calls = true;
  /// Throws when this rank's node has failed; called in every wait.
  std::function<void()> check = [] {};
  /// What failures call the ranks; empty: their numbers here.
  std::vector<int> names = {};
};

/// Called by every rank. Error naming the ranks that did not come in time; UsageError when the ranks were started for
/// different jobs, or when MASTER_ADDR is no address of rank 0's machine.
Mesh make_mesh(const MeshPlace& place);

}  // namespace lockstep::comm
