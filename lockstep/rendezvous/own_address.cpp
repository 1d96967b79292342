#include "lockstep/rendezvous/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

bool is_of_the_link_alone(const SocketAddress& address) {
  return address.bytes.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.bytes).sin6_addr);
}

bool means_this_machine_alone(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  const std::string bare = host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
  return bare == "localhost" || bare.ends_with(".localhost") || inet_pton(AF_INET, bare.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, bare.c_str(), &six) == 1;
}

int port_of(const SocketAddress& address) {
  return ntohs(address.bytes.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address.bytes).sin6_port
                                                   : reinterpret_cast<const sockaddr_in&>(address.bytes).sin_port);
}

std::vector<Interface> only_family(const std::vector<Interface>& interfaces, int family) {
  std::vector<Interface> found;
  std::ranges::copy_if(interfaces, std::back_inserter(found),
                       [&](const Interface& one) { return one.address.bytes.ss_family == family; });
  return found;
}

// IPv4 where there is any: it needs no scope, and is what the names in /etc/hosts are given.
std::vector<Interface> preferred(const std::vector<Interface>& interfaces) {
  std::vector<Interface> four = only_family(interfaces, AF_INET);
  return four.empty() ? only_family(interfaces, AF_INET6) : four;
}

}  // namespace

std::string host_text(const SocketAddress& address) {
  char text[NI_MAXHOST] = {};
  getnameinfo(reinterpret_cast<const sockaddr*>(&address.bytes), address.length, text, sizeof text, nullptr, 0,
              NI_NUMERICHOST);
  return text;
}

std::string to_text(const std::vector<Interface>& interfaces) {
  std::string list;
  for (const Interface& one : interfaces) list += (list.empty() ? "" : ", ") + one.name + " " + host_text(one.address);
  return list.empty() ? "none" : list;
}

bool is_loopback_by_name(const std::string& host, const SocketAddress& resolved) {
  return resolved.is_loopback() && !means_this_machine_alone(host);
}

std::string short_name(const std::string& name) { return name.substr(0, name.find('.')); }

bool same_host(const std::string& a, const std::string& b) {
  const bool both_full = a.find('.') != std::string::npos && b.find('.') != std::string::npos;
  const auto same = [](const std::string& one, const std::string& other) {
    return strcasecmp(one.c_str(), other.c_str()) == 0;
  };
  return both_full ? same(a, b) : same(short_name(a), short_name(b));
}

std::vector<Interface> own_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_errno("cannot list this machine's interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface one{.name = at->ifa_name, .address = {}};
    one.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&one.address.bytes, at->ifa_addr, one.address.length);
    if (!is_of_the_link_alone(one.address)) found.push_back(one);
  }
  return found;
}

SocketAddress address_of(const std::string& name, const std::vector<Interface>& interfaces) {
  std::vector<Interface> found;
  std::ranges::copy_if(interfaces, std::back_inserter(found), [&](const Interface& one) { return one.name == name; });
  if (found.empty())
    throw UsageError("LOCKSTEP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) " + name +
                     ": no interface here has this name and an address; there are: " + to_text(interfaces));
  return preferred(found).front().address;
}

std::vector<Interface> reachable_interfaces(const std::vector<Interface>& interfaces) {
  std::vector<Interface> found;
  std::ranges::copy_if(interfaces, std::back_inserter(found),
                       [](const Interface& one) { return !one.address.is_loopback(); });
  return preferred(found);
}

SocketAddress reachable(const std::string& what, const std::string& host, const SocketAddress& resolved,
                        const std::vector<Interface>& interfaces, const std::string& wanted) {
  if (!is_loopback_by_name(host, resolved)) return resolved;
  const std::vector<Interface> possible = reachable_interfaces(interfaces);
  if (possible.empty() && wanted.empty()) return resolved;
  if (possible.size() > 1 && wanted.empty())
    throw UsageError(
        what + " " + host + " is " + host_text(resolved) +
        " here (see /etc/hosts), which no other machine reaches, and this machine has several addresses (" +
        to_text(possible) + "): name the interface by LOCKSTEP_SOCKET_IFNAME");
  SocketAddress address = wanted.empty() ? possible.front().address : address_of(wanted, interfaces);
  address.set_port(port_of(resolved));
  return address;
}

}  // namespace lockstep::rendezvous
