#pragma once

// Where the agents meet, as this machine sees it.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/nodes/settings.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {

/// What of this machine the answer depends on.
struct OwnMachine {
  std::string host_name;                                           ///< as gethostname() tells it
  std::string interface;                                           ///< rendezvous::socket_interface()
  std::function<std::vector<rendezvous::Interface>()> interfaces;  ///< asked only where it matters
};

/// This machine.
OwnMachine own_machine();

/// The address of the endpoint, which resolves here to `resolved`. A name that is loopback's here is this machine's own
/// address where the name is the machine's own, or this agent is the one to host: `local` (--local-addr; without a
/// length: none), that of the interface asked for, or the only one that there is. Pure. UsageError: the name is another
/// machine's, which of several addresses is not said, there is none, or `local` is loopback's and the endpoint is not.
rendezvous::SocketAddress meeting_place(const NodesSettings& settings, const rendezvous::SocketAddress& resolved,
                                        const rendezvous::SocketAddress& local, const OwnMachine& here);

/// Where an agent that may host, and need not, was not let listen when it tried last.
struct RefusedPlace {
  rendezvous::SocketAddress address;
  int error = 0;  ///< rendezvous::Listening::error
};

/// Whether such an agent tries to listen at `address`, the endpoint's now; `last`: what came of its last try;
/// `reached`: since it began somebody at the endpoint has taken a connection of it. Again only at the same address:
/// where the port was taken, or where the address was not this machine's and nobody was reached at it, so that it came
/// late (DHCP). One at which somebody was, or to which the name was moved, has come here from an agent that may host
/// still, and there would be two jobs. Pure.
bool tries_to_host(const std::optional<RefusedPlace>& last, bool reached, const rendezvous::SocketAddress& address);

}  // namespace lockstep::launch
