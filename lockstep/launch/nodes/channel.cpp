#include "lockstep/launch/nodes/channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace lockstep::launch {
namespace {

Channel::Moved moved(ssize_t count) {
  if (count >= 0) return {.bytes = std::size_t(count)};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {.state = Channel::State::waits};
  return {.state = Channel::State::closed, .why = std::strerror(errno)};
}

}  // namespace

bool was_closed(const std::string& why) {
  return why == kClosed || why == std::strerror(ECONNRESET) || why == std::strerror(EPIPE);
}

Channel::Moved PlainChannel::read(char* into, std::size_t size) {
  const ssize_t count = recv(fd_, into, size, 0);
  return count == 0 ? Moved{.state = State::closed, .why = kClosed} : moved(count);
}

Channel::Moved PlainChannel::write(const char* from, std::size_t size) {
  const Moved result = moved(send(fd_, from, size, MSG_NOSIGNAL));
  full_ = result.state == State::waits;
  return result;
}

}  // namespace lockstep::launch
