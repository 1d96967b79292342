#pragma once

// Streams through the Gloo that is inside libtorch (c10d_streams.h). It is told where to listen: at the address by
// which this rank has met the others, which LOCKSTEP_SOCKET_IFNAME or GLOO_SOCKET_IFNAME chooses, never at all of a
// machine's.

#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/comm/network/streams.h"

namespace lockstep::comm {

/// Called by all ranks of a mesh, which tell each other over its connections for payload where their Gloo listens: no
/// store is needed, and no other port is opened. Behind it all of them are connected. Error when one of them does not
/// within `timeout`, or has gone, which names it, and with Gloo's words when it fails; `check` may throw meanwhile.
std::unique_ptr<Streams> gloo_streams(Mesh& mesh, std::chrono::milliseconds timeout, std::function<void()> check);

}  // namespace lockstep::comm
