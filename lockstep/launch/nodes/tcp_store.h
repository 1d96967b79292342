#pragma once

// c10d's TCPStore, by which torchrun's agents meet: another protocol than ours, at a port that may be the same.

#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

/// Whether one listens there: it gives the number of a ping back. Waits for a second at most.
bool is_tcp_store(const rendezvous::SocketAddress& address);

}  // namespace lockstep::launch
