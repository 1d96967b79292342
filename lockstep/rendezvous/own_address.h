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

/// Those by which others may reach the machine: without loopback's, and without IPv6's where there is one of IPv4.
/// Pure.
std::vector<Interface> reachable_interfaces(const std::vector<Interface>& interfaces);

/// "10.0.0.7", without the port.
std::string host_text(const SocketAddress& address);
/// "eth0 10.0.0.7, docker0 172.17.0.1"; "none".
std::string to_text(const std::vector<Interface>& interfaces);

/// Whether `host` is a name, not "localhost" nor an address in figures, and means loopback here: `resolved`. Debian
/// writes the machine's own name beside 127.0.1.1 into /etc/hosts. Pure.
bool is_loopback_by_name(const std::string& host, const SocketAddress& resolved);

/// "node7" of "node7.cluster.local". Pure.
std::string short_name(const std::string& name);

/// Whether two names are one host's: "node7" is "node7.cluster.local", but not "node7.elsewhere" when both have a
/// domain. Pure.
bool same_host(const std::string& a, const std::string& b);

/// Where others reach the machine that `host` means, which resolves here to `resolved`. That is `resolved`, except
/// where is_loopback_by_name(). Then it is the address of the interface `wanted`, or, with an empty one, the machine's
/// only address; where there are several, UsageError that begins with `what`, names them, and asks for
/// LOCKSTEP_SOCKET_IFNAME; a machine that has none is alone with its loopback. The port is resolved's. Pure.
SocketAddress reachable(const std::string& what, const std::string& host, const SocketAddress& resolved,
                        const std::vector<Interface>& interfaces, const std::string& wanted = "");

}  // namespace lockstep::rendezvous
