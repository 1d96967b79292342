#include "lockstep/launch/doctor/way.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPings = 20;
constexpr std::size_t kAtOnce = std::size_t(8) << 20;
constexpr std::chrono::seconds kIntroduction{2};  // a stranger that says nothing holds up the peer no longer

// Whether `fd` is ready before `deadline`, and `stop` (-1: nothing) is not.
bool wait_for(int fd, short events, Deadline deadline, int stop = -1) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    std::array<pollfd, 2> watched = {{{fd, events, 0}, {stop, POLLIN, 0}}};
    const int ready = left > 0 ? poll(watched.data(), watched.size(), int(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || watched[1].revents != 0) return false;
    if (watched[0].revents != 0) return true;
  }
}

bool receive_all(int fd, char* data, std::size_t size, Deadline deadline) {
  while (size > 0) {
    const ssize_t count = recv(fd, data, size, MSG_DONTWAIT);
    if (count == 0) return false;
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (count < 0 && !wait_for(fd, POLLIN, deadline)) return false;
    if (count > 0) data += count, size -= std::size_t(count);
  }
  return true;
}

bool send_all(int fd, const char* data, std::size_t size, Deadline deadline) {
  while (size > 0) {
    const ssize_t count = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (count < 0 && !wait_for(fd, POLLOUT, deadline)) return false;
    if (count > 0) data += count, size -= std::size_t(count);
  }
  return true;
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "?";
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int answer = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (answer != 0) throw Error("'" + host + "' does not resolve: " + gai_strerror(answer));
  return {found, freeaddrinfo};
}

void without_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool serve_peer_at(int fd, const std::string& token, Deadline deadline) {
  std::string said(kTokenSize, '\0');
  if (!receive_all(fd, said.data(), said.size(), std::min(deadline, Clock::now() + kIntroduction)) || said != token)
    return false;
  without_delay(fd);
  char byte = 0;
  for (int i = 0; i < kPings; ++i)
    if (!receive_all(fd, &byte, 1, deadline) || !send_all(fd, &byte, 1, deadline)) return false;
  std::vector<char> piece(1 << 18);
  for (std::size_t left = kAtOnce; left > 0; left -= std::min(left, piece.size()))
    if (!receive_all(fd, piece.data(), std::min(left, piece.size()), deadline)) return false;
  return send_all(fd, &byte, 1, deadline);
}

// A connection, or why there is none.
base::UniqueFd connect_way(const std::string& host, int port, Deadline deadline, WayFacts& way) {
  const Addresses addresses = addresses_of(host, port);
  const addrinfo& there = *addresses;
  way.address = numeric_host(there.ai_addr, there.ai_addrlen);
  base::UniqueFd fd(socket(there.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  if (!fd || (connect(fd.get(), there.ai_addr, there.ai_addrlen) != 0 && errno != EINPROGRESS)) {
    error = errno;
  } else if (!wait_for(fd.get(), POLLOUT, deadline)) {
    error = ETIMEDOUT;
  } else {
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) throw Error(way.address + " port " + std::to_string(port) + ": " + std::strerror(error));
  without_delay(fd.get());
  return fd;
}

}  // namespace

WayListener listen_for_way(const std::string& host) {
  const Addresses addresses = addresses_of(host, 0);
  WayListener listener;
  listener.socket = base::UniqueFd(socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  listener.address = numeric_host(addresses->ai_addr, addresses->ai_addrlen);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (!listener.socket || bind(listener.socket.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(listener.socket.get(), 4) != 0 ||
      getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    throw_errno("'" + host + "' is " + listener.address + " there, which cannot be listened at");
  listener.port = ntohs(own.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(own).sin_port
                                                 : reinterpret_cast<const sockaddr_in6&>(own).sin6_port);
  return listener;
}

bool serve_way(const WayListener& listener, const std::string& token, int stop, Deadline deadline) {
  while (wait_for(listener.socket.get(), POLLIN, deadline, stop)) {
    const base::UniqueFd peer(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer && serve_peer_at(peer.get(), token, deadline)) return true;
  }
  return false;
}

WayFacts measure_way(const std::string& host, int port, const std::string& token, Deadline deadline) {
  WayFacts way;
  try {
    const base::UniqueFd fd = connect_way(host, port, deadline, way);
    const auto broken = [&] { return Error(way.address + ": the connection broke, or was too slow"); };
    if (!send_all(fd.get(), token.data(), token.size(), deadline)) throw broken();
    std::vector<std::chrono::nanoseconds> times;
    char byte = 'p';
    for (int i = 0; i < kPings; ++i) {
      const auto begin = Clock::now();
      if (!send_all(fd.get(), &byte, 1, deadline) || !receive_all(fd.get(), &byte, 1, deadline)) throw broken();
      times.push_back(Clock::now() - begin);
    }
    std::ranges::sort(times);
    way.round_trip = times[times.size() / 2];
    const std::vector<char> much(kAtOnce);
    const auto begin = Clock::now();
    if (!send_all(fd.get(), much.data(), much.size(), deadline) || !receive_all(fd.get(), &byte, 1, deadline))
      throw broken();
    way.bytes_per_second = double(kAtOnce) / std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const Error& error) {
    way.error = error.what();
  }
  return way;
}

}  // namespace lockstep::launch
