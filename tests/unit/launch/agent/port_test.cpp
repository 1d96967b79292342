#include "lockstep/launch/agent/port.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/base/unique_fd.h"
#include "tests/support/listener.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using testing::Listener;

TEST(Ports, AFreeOneIsNotTaken) {
  const int port = free_port();
  EXPECT_GE(port, 10'000);
  EXPECT_LT(port, 65'536);
  EXPECT_FALSE(port_is_taken(port));
}

TEST(Ports, AListenerTakesIt) {
  int port = 0;
  {
    const Listener listener;
    port = listener.port();
    EXPECT_TRUE(port_is_taken(port));
  }
  EXPECT_FALSE(port_is_taken(port));
}

TEST(Ports, AListenerOfOurselvesOrOfOthersIsAStranger) {
  const Listener listener;
  EXPECT_TRUE(stranger_has_port(listener.port())) << "only descendants count as ours";
  EXPECT_FALSE(stranger_has_port(free_port())) << "nobody has it";
}

TEST(Ports, AListenerOfADescendantIsNone) {
  struct Daemon {
    pid_t pid;
    int port;
  };
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const base::UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) pause();
    setsid();
    const Listener listener;
    const Daemon daemon{.pid = getpid(), .port = listener.port()};
    if (write(writer.get(), &daemon, sizeof daemon) != ssize_t(sizeof daemon)) _exit(1);
    pause();
    _exit(0);
  }
  Daemon daemon{};
  ASSERT_EQ(read(reader.get(), &daemon, sizeof daemon), ssize_t(sizeof daemon));
  EXPECT_TRUE(port_is_taken(daemon.port));
  EXPECT_FALSE(stranger_has_port(daemon.port));
  kill(daemon.pid, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(ListeningInodes, OfThisPortAndOnlyListeners) {
  const char* table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 500 1 0 100 0 0 10 "
      "0\n"
      "   1: 0100007F:07E8 0100007F:E7F2 01 00000000:00000000 03:00000AB0 00000000     0        0 501 3 0\n"
      "   2: 00000000000000000000000001000000:07E8 00000000000000000000000000000000:0000 0A 00000000:00000000 "
      "00:00000000 00000000  1000        0 502 1 0 100 0 0 10 0\n"
      "   3: 00000000:07E9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 503 1 0 100 0 0 10 "
      "0\n"
      "   4: nonsense\n";
  EXPECT_THAT(listening_inodes(table, 0x07E8), ElementsAre(500, 502));
  EXPECT_THAT(listening_inodes("", 0x07E8), ElementsAre());
}

}  // namespace
}  // namespace lockstep::launch
