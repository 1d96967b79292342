#pragma once

// The address by which other machines reach this one.

#include <string>
#include <vector>

#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {

struct Interface {
  std::string name;  ///< "eth0"
  SocketAddress address;
};

/// This machine's interfaces that are up, loopback's too, but without IPv6's addresses of the link alone. In the
/// system's order.
std::vector<Interface> own_interfaces();

/// The address of the interface with this name, an IPv4 one where it has any, with port 0. UsageError names those that
/// exist. Pure.
SocketAddress address_of(const std::string& name, const std::vector<Interface>& interfaces);

/// Where others reach the machine that `host` means, which resolves here to `resolved`. That is `resolved`, except
/// where a name is loopback's: Debian writes the machine's own name beside 127.0.1.1 into /etc/hosts. Then it is the
/// address of the interface `wanted`, or, with an empty one, the machine's only address; where there are several,
/// UsageError that begins with `what`, names them, and asks for LOCKSTEP_SOCKET_IFNAME; a machine that has none is
/// alone with its loopback. "localhost" and addresses in figures mean what they say. The port is resolved's. Pure.
SocketAddress reachable(const std::string& what, const std::string& host, const SocketAddress& resolved,
                        const std::vector<Interface>& interfaces, const std::string& wanted = "");

}  // namespace lockstep::rendezvous
