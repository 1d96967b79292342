// Names, interfaces and ports.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/doctor/gather.h"
#include "lockstep/launch/nodes/meeting_place.h"

namespace lockstep::launch {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

struct Resolved {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, freeaddrinfo};
  std::string error;
};

Resolved resolve(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int answer = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  Resolved resolved;
  if (answer != 0)
    resolved.error = answer == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(answer);
  else
    resolved.list.reset(found);
  return resolved;
}

std::string name_of(const addrinfo& at) {
  char name[NI_MAXHOST];
  if (getnameinfo(at.ai_addr, at.ai_addrlen, name, sizeof name, nullptr, 0, NI_NAMEREQD) != 0) return {};
  return name;
}

// From which of our addresses a packet would go there. Nothing is sent: a datagram socket only learns its route.
std::string source_towards(const rendezvous::SocketAddress& there) {
  const base::UniqueFd probe(socket(there.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || connect(probe.get(), reinterpret_cast<const sockaddr*>(&there.bytes), there.length) != 0) return {};
  return rendezvous::host_text(rendezvous::own_end(probe.get()));
}

// 0, or why nobody can listen there.
int try_listening(const rendezvous::SocketAddress& there) {
  const base::UniqueFd probe(socket(there.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!probe) return errno;
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* const address = reinterpret_cast<const sockaddr*>(&there.bytes);
  return bind(probe.get(), address, there.length) == 0 && listen(probe.get(), 1) == 0 ? 0 : errno;
}

rendezvous::SocketAddress address_of(const addrinfo& found) {
  rendezvous::SocketAddress address;
  std::memcpy(&address.bytes, found.ai_addr, found.ai_addrlen);
  address.length = found.ai_addrlen;
  return address;
}

}  // namespace

HostPort parse_host_port(const std::string& flag, const std::string& text) {
  const auto wrong = [&] {
    return UsageError(flag + " '" + base::shown(text) + "' is not HOST or HOST:PORT, as node1:29400 or [::1]:29400");
  };
  HostPort result{.host = text};
  std::string port;
  const std::size_t bracket = text.find(']');
  if (text.starts_with('[')) {
    if (bracket == std::string::npos || (bracket + 1 < text.size() && text[bracket + 1] != ':')) throw wrong();
    result.host = text.substr(1, bracket - 1);
    port = text.substr(bracket + 1);
  } else if (std::ranges::count(text, ':') == 1) {  // an address of IPv6 has at least two
    result.host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  const auto is_host_character = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr(".-_:%", c);
  };
  if (result.host.empty() || result.host.size() > 253 || result.host.starts_with('-') ||
      !std::ranges::all_of(result.host, is_host_character))
    throw wrong();
  if (port.empty()) return result;
  const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), result.port);
  if (error != std::errc() || end != port.data() + port.size() || result.port < 0 || result.port > 65'535)
    throw wrong();
  return result;
}

std::vector<Interface> gather_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found.push_back({.name = at->ifa_name,
                     .address = numeric(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
                     .up = (at->ifa_flags & IFF_UP) != 0,
                     .loopback = (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

NameFacts gather_names(const std::string& host) {
  NameFacts facts{.host = host};
  const Resolved resolved = resolve(host, 0);
  facts.error = resolved.error;
  for (const addrinfo* at = resolved.list.get(); at != nullptr; at = at->ai_next)
    facts.addresses.push_back({numeric(at->ai_addr, at->ai_addrlen), name_of(*at)});
  return facts;
}

EndpointFacts gather_endpoint(const std::string& text, const std::vector<Interface>& interfaces) {
  const HostPort wanted = parse_host_port("--endpoint", text);
  EndpointFacts facts{.text = text, .port = wanted.port};
  const Resolved resolved = resolve(wanted.host, wanted.port);
  if (!resolved.error.empty()) {
    facts.error = "'" + wanted.host + "' does not resolve: " + resolved.error;
    return facts;
  }
  rendezvous::SocketAddress place = address_of(*resolved.list);
  try {  // as the agents do
    place = meeting_place({.host = wanted.host, .port = wanted.port}, place, {}, own_machine());
  } catch (const UsageError& error) {
    facts.error = error.what();
    return facts;
  }
  facts.address = rendezvous::host_text(place);
  const std::string source = source_towards(place);
  for (const Interface& one : interfaces) {
    // All of 127.0.0.0/8 is the loopback interface's, which has one address.
    facts.local |= one.address == facts.address || (one.loopback && facts.address.starts_with("127."));
    if (one.address == source || (one.loopback && source.starts_with("127."))) facts.interface_name = one.name;
  }
  if (source.empty()) facts.error = "there is no way to " + facts.address + " from here";
  if (facts.local)
    if (const int error = try_listening(place)) facts.port_error = std::strerror(error);
  return facts;
}

}  // namespace lockstep::launch
