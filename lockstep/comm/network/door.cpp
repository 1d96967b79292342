#include "lockstep/comm/network/door.h"

#include <algorithm>

namespace lockstep::comm {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool Patience::is_over() const {
  check();
  return steady_clock::now() >= deadline;
}

int Patience::slice() const {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return int(std::clamp<long long>(left, 0, 100));
}

bool write_all(int fd, const void* bytes, std::size_t size, const Patience& patience) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t sent = ::send(fd, static_cast<const char*>(bytes) + at, size - at, MSG_NOSIGNAL);
    if (sent > 0) at += std::size_t(sent);
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd waits{.fd = fd, .events = POLLOUT, .revents = 0};
    if (poll(&waits, 1, patience.slice()) <= 0 && patience.is_over()) return false;
  }
  return true;
}

bool read_all(int fd, void* bytes, std::size_t size, const Patience& patience) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = ::recv(fd, static_cast<char*>(bytes) + at, size - at, 0);
    if (got > 0) at += std::size_t(got);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) return false;
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waits, 1, patience.slice()) <= 0 && patience.is_over()) return false;
  }
  return true;
}

Opening await_opening(int fd, std::uint64_t magic, const Patience& patience) {
  for (;;) {
    std::uint64_t came = 0;
    const ssize_t got = ::recv(fd, &came, sizeof came, MSG_PEEK);
    if (got > 0) return std::memcmp(&came, &magic, std::size_t(got)) == 0 ? Opening::right : Opening::other;
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || errno != EAGAIN) return Opening::closed;
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waits, 1, patience.slice()) <= 0 && patience.is_over()) return Opening::late;
  }
}

base::UniqueFd connect_by(const rendezvous::SocketAddress& address, const Patience& patience) {
  base::UniqueFd fd = rendezvous::begin_connect(address, {});
  if (!fd) return {};
  pollfd waits{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  while (poll(&waits, 1, patience.slice()) <= 0)
    if (patience.is_over()) return {};
  if (rendezvous::connect_error(fd.get()) != 0) return {};
  return fd;
}

}  // namespace lockstep::comm
