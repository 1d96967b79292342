#include "lockstep/launch/workers/process_state.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/wait_until.h"

namespace lockstep::launch {
namespace {

std::string stat(const std::string& name, char letter, unsigned flags) {
  return "42 (" + name + ") " + letter + " 1 42 42 0 -1 " + std::to_string(flags) + " 0 0 0\n";
}

TEST(ProcessState, IsReadBehindAnyName) {
  for (const std::string name : {"sleep", "a) Z 1 2 3", "", ") T"}) {
    const ProcessState state = parse_process_state(stat(name, 'S', 0x400000), "");
    EXPECT_EQ(state.letter, 'S') << name;
    EXPECT_FALSE(state.is_stopped() || state.is_dying()) << name;
  }
  EXPECT_TRUE(parse_process_state(stat("x", 'T', 0), "").is_stopped());
  EXPECT_TRUE(parse_process_state(stat("x", 't', 0), "").is_stopped());
  EXPECT_TRUE(parse_process_state(stat("x", 'Z', 0), "").is_dying());
  EXPECT_TRUE(parse_process_state(stat("x", 'S', 0x404), "").is_dying()) << "PF_EXITING";
}

TEST(ProcessState, APendingKillIsDeath) {
  const std::string before = "Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t";
  EXPECT_TRUE(parse_process_state(stat("x", 'S', 0), before + "0000000000000100\n").is_dying());
  EXPECT_FALSE(parse_process_state(stat("x", 'S', 0), before + "0000000000004000\n").is_dying()) << "SIGTERM may wait";
}

TEST(ProcessState, OfNoProcessIsNothing) {
  for (const std::string text : {"", "42", "42 (x)", "42 (x) "}) EXPECT_EQ(parse_process_state(text, "").letter, 0);
  EXPECT_EQ(process_state(0).letter, 0);
}

TEST(ProcessState, FollowsAProcess) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  testing::wait_until([&] { return process_state(child).letter == 'S'; });
  kill(child, SIGSTOP);
  testing::wait_until([&] { return process_state(child).is_stopped(); });
  kill(child, SIGKILL);
  testing::wait_until([&] { return process_state(child).is_dying(); });
  waitpid(child, nullptr, 0);
  EXPECT_EQ(process_state(child).letter, 0);
}

}  // namespace
}  // namespace lockstep::launch
