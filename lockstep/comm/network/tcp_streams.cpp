#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/comm/network/streams.h"

namespace lockstep::comm {
namespace {

Moved moved_or_why(ssize_t result) {
  if (result >= 0) return {.bytes = std::size_t(result)};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return {.error = std::strerror(errno)};
}

msghdr over(std::span<const iovec> pieces) {
  msghdr what{};
  what.msg_iov = const_cast<iovec*>(pieces.data());  // which neither call writes
  what.msg_iovlen = pieces.size();
  return what;
}

class TcpStreams final : public Streams {
 public:
  explicit TcpStreams(std::vector<base::UniqueFd> connections) : connections_(std::move(connections)) {}

  Moved send(int peer, std::span<const iovec> pieces) override {
    const msghdr what = over(pieces);
    return moved_or_why(sendmsg(polled(peer), &what, MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  Moved receive(int peer, std::span<const iovec> pieces) override {
    msghdr what = over(pieces);
    const ssize_t got = recvmsg(polled(peer), &what, MSG_DONTWAIT);
    return got == 0 ? Moved{.ended = true} : moved_or_why(got);
  }
  Sent sent(int) override { return {.done = true}; }
  int polled(int peer) const override { return connections_[std::size_t(peer)].get(); }
  std::chrono::nanoseconds nap(std::chrono::nanoseconds) const override { return std::chrono::milliseconds(10); }
  bool end_with_news() const override { return false; }
  std::unique_ptr<Streams> part(Mesh& mesh, std::int64_t) override { return tcp_streams(mesh); }

 private:
  std::vector<base::UniqueFd> connections_;  // by rank
};

}  // namespace

std::unique_ptr<Streams> tcp_streams(Mesh& mesh) {
  std::vector<base::UniqueFd> connections;
  for (MeshPeer& peer : mesh.peers) connections.push_back(std::move(peer.data));
  return std::make_unique<TcpStreams>(std::move(connections));
}

}  // namespace lockstep::comm
