#include "lockstep/launch/nodes/tcp_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{1'000};
// It is answered by the number of its PING.
constexpr std::string_view kNumber = rendezvous::kTcpStoreProbe.substr(6);

bool ready(int fd, short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd watched{fd, events, 0};
  return left > 0 && poll(&watched, 1, int(left)) > 0 && (watched.revents & events) != 0;
}

}  // namespace

bool is_tcp_store(const rendezvous::SocketAddress& address) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  const base::UniqueFd fd = rendezvous::begin_connect(address, {});
  if (!fd || !ready(fd.get(), POLLOUT, deadline)) return false;
  const std::string_view said = rendezvous::kTcpStoreProbe;
  if (send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL) != ssize_t(said.size())) return false;
  char answer[8];
  return ready(fd.get(), POLLIN, deadline) &&
         std::string_view(answer, std::size_t(std::max<ssize_t>(0, recv(fd.get(), answer, sizeof answer, 0)))) ==
             kNumber;
}

}  // namespace lockstep::launch
