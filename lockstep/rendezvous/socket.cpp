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

SocketAddress resolve(const std::string& what, const std::string& host, int port) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &wanted, &found); error != 0)
    throw UsageError(what + " " + host + ": no such host: " + gai_strerror(error));
  SocketAddress address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  if (address.is_wildcard()) throw UsageError(what + " " + host + ": every address of a machine, not one");
  return address;
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
