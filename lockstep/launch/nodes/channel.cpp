#include "lockstep/launch/nodes/channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {
namespace {

// The type of a record of TLS, with which no frame of ours begins; and a record of version 3.3 that is a fatal alert
// (40).
constexpr char kTlsHandshake = 22;
constexpr std::string_view kHandshakeFailure("\x15\x03\x03\x00\x02\x02\x28", 7);

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

// What it has said is taken first: with something unread the answer might be taken back.
Channel::Moved PlainDoor::read(char* into, std::size_t size) {
  char bytes[2 * rendezvous::kLongestFromStranger];
  if (looks_for_key_ && recv(fd_, bytes, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
    looks_for_key_ = false;
    if (bytes[0] == kTlsHandshake) {
      recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
      send(fd_, kHandshakeFailure.data(), kHandshakeFailure.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return {.state = State::closed, .why = kHasKey};
    }
  }
  return PlainChannel::read(into, size);
}

Channel::Moved PlainChannel::write(const char* from, std::size_t size) {
  const Moved result = moved(send(fd_, from, size, MSG_NOSIGNAL));
  full_ = result.state == State::waits;
  return result;
}

}  // namespace lockstep::launch
