#include "lockstep/rendezvous/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

// A thousand agents may knock at once; who finds no room tries again a second later. The kernel's limit is somaxconn.
constexpr int kBacklog = 4'096;

const sockaddr* generic(const SocketAddress& address) { return reinterpret_cast<const sockaddr*>(&address.bytes); }

SocketAddress address_of(const addrinfo& found) {
  SocketAddress address;
  std::memcpy(&address.bytes, found.ai_addr, found.ai_addrlen);
  address.length = found.ai_addrlen;
  return address;
}

base::UniqueFd tcp_socket(int family) {
  base::UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw_errno("sockets: socket");
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (bytes.ss_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr) >> 24 == 127;
}

bool SocketAddress::is_wildcard() const {
  if (bytes.ss_family == AF_INET6) {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr;
    const bool four = IN6_IS_ADDR_V4MAPPED(&six);  // ::ffff:0.0.0.0
    return IN6_IS_ADDR_UNSPECIFIED(&six) ||
           (four && std::all_of(six.s6_addr + 12, six.s6_addr + 16, std::logical_not<>()));
  }
  return reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr == INADDR_ANY;
}

void SocketAddress::set_port(int port) {
  if (bytes.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(bytes).sin6_port = htons(std::uint16_t(port));
  else
    reinterpret_cast<sockaddr_in&>(bytes).sin_port = htons(std::uint16_t(port));
}

Resolved try_resolve(const std::string& what, const std::string& host, int port) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0) {
    const std::string why = std::string("no such host: ") + gai_strerror(error);
    const bool name = bare.find(':') == std::string::npos && bare.find_first_not_of("0123456789.") != std::string::npos;
    if (name && (error == EAI_NONAME || error == EAI_AGAIN || error == EAI_NODATA))
      return {.addresses = {}, .why = why};
    throw UsageError(what + " " + host + ": " + why);
  }
  Resolved resolved;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) resolved.addresses.push_back(address_of(*at));
  freeaddrinfo(found);
  if (std::ranges::any_of(resolved.addresses, &SocketAddress::is_wildcard))
    throw UsageError(what + " " + host + ": every address of a machine, not one");
  return resolved;
}

SocketAddress resolve(const std::string& what, const std::string& host, int port) {
  const Resolved resolved = try_resolve(what, host, port);
  if (resolved.addresses.empty()) throw UsageError(what + " " + host + ": " + resolved.why);
  return resolved.addresses.front();
}

std::string to_text(const SocketAddress& address) {
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  getnameinfo(generic(address), address.length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return (address.bytes.ss_family == AF_INET6 ? "[" + std::string(host) + "]" : host) + ":" + port;
}

std::optional<SocketAddress> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') != host.ends_with(']')) return std::nullopt;
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), text.substr(colon + 1).c_str(), &wanted, &found) != 0) return std::nullopt;
  const SocketAddress address = address_of(*found);
  freeaddrinfo(found);
  return address.is_wildcard() ? std::nullopt : std::optional(address);
}

namespace {

SocketAddress end_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.length = sizeof address.bytes;
  const bool found = ask(fd, reinterpret_cast<sockaddr*>(&address.bytes), &address.length) == 0;
  const int family = address.bytes.ss_family;
  return found && (family == AF_INET || family == AF_INET6) ? address : SocketAddress{};
}

}  // namespace

SocketAddress own_end(int fd) {
  return end_of(fd, [](int of, sockaddr* to, socklen_t* size) { return getsockname(of, to, size); });
}

SocketAddress other_end(int fd) {
  return end_of(fd, [](int of, sockaddr* to, socklen_t* size) { return getpeername(of, to, size); });
}

SocketAddress own_end_towards(const SocketAddress& address) {
  const base::UniqueFd fd(socket(address.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), generic(address), address.length) != 0)
    throw_errno("sockets: no way to " + to_text(address));
  SocketAddress own = own_end(fd.get());
  own.set_port(0);
  return own;
}

Listening listen_at(const SocketAddress& address) {
  Listening listening{.fd = tcp_socket(address.bytes.ss_family), .error = 0};
  const int on = 1;  // connections of a job before this one may linger
  setsockopt(listening.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listening.fd.get(), generic(address), address.length) == 0 && listen(listening.fd.get(), kBacklog) == 0)
    return listening;
  if (errno != EADDRNOTAVAIL && errno != EADDRINUSE) throw_errno("cannot listen for other nodes");
  return {.fd = {}, .error = errno};
}

// Without SO_REUSEADDR: with it the port would be anybody's as long as nobody listens.
base::UniqueFd reserve_port(const SocketAddress& address) {
  SocketAddress any = address;
  any.set_port(0);
  base::UniqueFd fd = tcp_socket(address.bytes.ss_family);
  if (bind(fd.get(), generic(any), any.length) != 0) return {};
  return fd;
}

void listen_at_reserved(int fd) {
  if (listen(fd, kBacklog) != 0) throw_errno("cannot listen for other nodes");
}

base::UniqueFd accept_at(int listener) {
  base::UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) send_at_once(fd.get());
  return fd;
}

base::UniqueFd begin_connect(const SocketAddress& address, const SocketAddress& local) {
  base::UniqueFd fd = tcp_socket(address.bytes.ss_family);
  send_at_once(fd.get());
  if (local.length != 0 && bind(fd.get(), generic(local), local.length) != 0)
    throw_errno("cannot connect from this address");
  if (connect(fd.get(), generic(address), address.length) != 0 && errno != EINPROGRESS) return {};
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace lockstep::rendezvous
