#include "lockstep/launch/nodes/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <utility>

namespace lockstep::launch {
namespace {

// Behind a reset the socket is closed altogether. One of another kind (AF_UNIX) knows no resets.
bool is_closed_by_peer(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE_WAIT;
}

}  // namespace

Connection::Connection(EventLoop& loop, base::UniqueFd fd, std::unique_ptr<Channel> channel, Events events)
    : loop_(loop), fd_(std::move(fd)), channel_(std::move(channel)), events_(std::move(events)) {
  watch_ = loop_.watch(fd_.get(), [this] { on_event(); });
}

void Connection::send(const rendezvous::Message& message) {
  if (!open_) return;
  unsent_ += to_frame(message);
  write();
}

bool Connection::has_arrived() const {
  int unacknowledged = 0;
  return settled() && (!open_ || ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0);
}

void Connection::close() {
  if (!std::exchange(open_, false)) return;
  watch_ = {};
  shutdown(fd_.get(), SHUT_RDWR);
}

void Connection::fail(const std::string& why) {
  if (!open_) return;
  const Parting how = closed_by_peer_ || is_closed_by_peer(fd_.get()) ? Parting::closed : Parting::cut;
  close();
  events_.closed(why, how);
}

void Connection::on_event() {
  read();
  if (open_) write();  // also where nothing waits: what the channel wants may have changed
}

// At most one buffer in a turn: who sends a lot does not keep the loop from the others.
void Connection::read() {
  std::array<char, 16 * 1024> buffer;
  closed_by_peer_ = is_closed_by_peer(fd_.get());  // before TLS takes its leave of one who answers that with a reset
  const Channel::Moved moved = channel_->read(buffer.data(), buffer.size());
  received_.append(buffer.data(), moved.bytes);
  if (moved.bytes > 0) take_messages();
  if (moved.state == Channel::State::closed) fail(moved.why);
}

void Connection::take_messages() {
  try {
    while (open_) {
      const std::optional<rendezvous::Message> message = rendezvous::take_message(received_, longest_);
      if (!message) return;
      events_.message(*message);
    }
  } catch (const rendezvous::BadFrame& error) {
    fail(error.what());
  }
}

void Connection::write() {
  while (open_ && !unsent_.empty()) {
    const Channel::Moved moved = channel_->write(unsent_.data(), unsent_.size());
    unsent_.erase(0, moved.bytes);
    if (moved.state == Channel::State::closed) return fail(moved.why);
    if (moved.state == Channel::State::waits) break;
  }
  if (unsent_.size() > most_unsent_) return fail("it does not read what it is sent");
  watch();
}

void Connection::watch() {
  const bool room = channel_->waits_for_room();
  if (!open_ || room == watches_room_) return;
  watches_room_ = room;
  watch_ = {};
  watch_ = loop_.watch(
      fd_.get(), [this] { on_event(); }, room);
}

}  // namespace lockstep::launch
