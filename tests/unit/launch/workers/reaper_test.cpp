// What becomes of an agent's connections to other agents when it is killed. What becomes of its workers is seen in the
// tests with processes.

#include "lockstep/launch/workers/reaper.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/nodes/connection.h"
#include "lockstep/rendezvous/socket.h"
#include "tests/support/wait_until.h"

namespace lockstep::launch {
namespace {

using base::UniqueFd;
using testing::wait_until;

// Of an agent and of another one, over the loopback.
struct BothEnds {
  UniqueFd own, others;
};

BothEnds both_ends() {
  const rendezvous::Listening listening = rendezvous::listen_at(rendezvous::resolve("test", "127.0.0.1", 0));
  BothEnds ends;
  ends.others = rendezvous::begin_connect(rendezvous::own_end(listening.fd.get()), {});
  wait_until([&] {
    ends.own = rendezvous::accept_at(listening.fd.get());
    return bool(ends.own);
  });
  return ends;
}

// Its words, its timer, and where connections are passed on.
constexpr std::size_t kWithoutConnections = 3;

std::size_t descriptors_of(const Reaper& reaper) {
  std::size_t count = 0;
  const std::string folder = "/proc/" + std::to_string(reaper.pid()) + "/fd";
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// The kernel says it with a reset (ECONNRESET), which a firewall may send while the agent lives.
TEST(Reaper, EndsTheConnectionOfAKilledAgentThatHadNotReadAll) {
  BothEnds ends = both_ends();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const UniqueFd is_ready(ready[0]);
  UniqueFd say_ready(ready[1]);
  const pid_t agent = fork();
  if (agent == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Reaper reaper;
    reaper.hold(ends.own.get());
    if (write(say_ready.get(), "", 1) != 1) _exit(1);
    while (true) pause();
  }
  say_ready = {};
  ends.own = {};
  char byte = 0;
  ASSERT_EQ(read(is_ready.get(), &byte, 1), 1);
  ASSERT_EQ(send(ends.others.get(), "unread", 6, MSG_NOSIGNAL), 6);
  kill(agent, SIGKILL);
  EXPECT_EQ(waitpid(agent, nullptr, 0), agent);
  pollfd end{.fd = ends.others.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&end, 1, 60'000), 1);
  errno = 0;
  EXPECT_EQ(recv(ends.others.get(), &byte, 1, 0), 0) << std::strerror(errno);
}

TEST(Reaper, LetsAConnectionGoThatTheAgentHasEnded) {
  BothEnds ends = both_ends();
  base::Outlet console = base::Outlet::console(STDERR_FILENO);
  EventLoop loop(console);
  Reaper reaper;
  wait_until([&] { return descriptors_of(reaper) == kWithoutConnections; });
  {
    const int fd = ends.own.get();
    const Connection connection(loop, std::move(ends.own), std::make_unique<PlainChannel>(fd), {});
    reaper.hold(fd);
    wait_until([&] { return descriptors_of(reaper) == kWithoutConnections + 1; });
  }
  wait_until([&] { return descriptors_of(reaper) == kWithoutConnections; });
  char byte = 0;
  wait_until([&] { return recv(ends.others.get(), &byte, 1, 0) == 0; });
}

TEST(Reaper, LetsAConnectionGoThatWasReset) {
  BothEnds ends = both_ends();
  Reaper reaper;
  wait_until([&] { return descriptors_of(reaper) == kWithoutConnections; });
  reaper.hold(ends.own.get());
  wait_until([&] { return descriptors_of(reaper) == kWithoutConnections + 1; });
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(ends.others.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  ends.others = {};
  wait_until([&] { return descriptors_of(reaper) == kWithoutConnections; });
}

}  // namespace
}  // namespace lockstep::launch
