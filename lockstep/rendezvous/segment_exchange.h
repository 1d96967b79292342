#pragma once

// How the ranks of a node come to share one segment.
//
// Under our agent it exists already and has a path. Otherwise local rank 0 makes it and
// hands the descriptor over an abstract Unix socket (local_socket.h): no file that could be left behind or
// be opened by another user, gone with its process (docs/design/launch.md). Both sides check the other's user, the
// job's key and the PID namespace.

#include <chrono>

#include "lockstep/base/segment.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::rendezvous {

/// Returns this rank's view of the node's segment. Called once by every local rank; local
/// rank 0 returns when all others have been served, so nothing goes on in the background.
/// Throws Error, naming the local ranks that did not come, when `timeout` is over, and before that when one that has
/// come ends.
base::Segment share_segment(const Place& place, std::chrono::milliseconds timeout);

}  // namespace lockstep::rendezvous
