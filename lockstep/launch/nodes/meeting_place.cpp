#include "lockstep/launch/nodes/meeting_place.h"

#include <cerrno>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/launch/machine/machine.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::launch {

namespace meet = rendezvous;

namespace {

// Whether this agent is said to be the one that hosts.
bool is_to_host(const NodesSettings& settings) {
  return settings.is_host.value_or(settings.limits.fixed_ranks && settings.node_rank == 0);
}

meet::SocketAddress own_address(const OwnMachine& here, const std::string& unreachable) {
  const std::vector<meet::Interface> interfaces = here.interfaces();
  if (!here.interface.empty()) return meet::address_of(here.interface, interfaces);
  const std::vector<meet::Interface> possible = meet::reachable_interfaces(interfaces);
  if (possible.empty())
    throw UsageError(unreachable +
                     ", which no other node reaches, and this machine has no other address: give localhost where all "
                     "agents are on one machine");
  if (possible.size() > 1)
    throw UsageError(unreachable + ", which no other node reaches, and this machine has several addresses (" +
                     meet::to_text(possible) +
                     "): give --local-addr ADDRESS, or name the interface by LOCKSTEP_SOCKET_IFNAME");
  return possible.front().address;
}

}  // namespace

OwnMachine own_machine() {
  return {.host_name = host_name(), .interface = meet::socket_interface(::getenv), .interfaces = meet::own_interfaces};
}

meet::SocketAddress meeting_place(const NodesSettings& settings, const meet::SocketAddress& resolved,
                                  const meet::SocketAddress& local, const OwnMachine& here) {
  const bool by_name = meet::is_loopback_by_name(settings.host, resolved);
  if (!by_name && !resolved.is_loopback() && local.length > 0 && local.is_loopback())
    throw UsageError("run: --local-addr " + settings.local_addr + " is this machine's alone, but --rdzv-endpoint " +
                     settings.host + " is not: give an address that the other nodes reach, or leave it out");
  if (!by_name) return resolved;
  const std::string unreachable =
      "run: --rdzv-endpoint " + settings.host + " is " + meet::host_text(resolved) + " here (see /etc/hosts)";
  // Where several machines were given the same file each would host a job of its own.
  if (!is_to_host(settings) && !meet::same_host(settings.host, here.host_name))
    throw UsageError(
        unreachable + ", but this machine is " + here.host_name +
        ": let the name mean the hosting node's address here, or give the agent that is to host --rdzv-conf "
        "is_host=1");
  meet::SocketAddress place = local.length > 0 ? local : own_address(here, unreachable);
  place.set_port(settings.port);
  return place;
}

bool tries_to_host(const std::optional<RefusedPlace>& last, bool reached, const meet::SocketAddress& address) {
  if (!last) return true;
  if (meet::to_text(last->address) != meet::to_text(address)) return false;
  return last->error == EADDRINUSE || !reached;
}

}  // namespace lockstep::launch
