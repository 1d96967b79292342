#include "lockstep/launch/workers/orphans.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/launch/workers/process_state.h"
#include "tests/support/wait_until.h"

namespace lockstep::launch {
namespace {

pid_t child_that_has_ended() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  testing::wait_until([&] { return process_state(pid).letter == 'Z'; });
  return pid;
}

TEST(Orphans, AreBuriedUnlessSomebodyAwaitsThem) {
  const pid_t orphan = child_that_has_ended();
  const pid_t awaited = child_that_has_ended();
  const pid_t living = fork();
  if (living == 0) {
    pause();
    _exit(0);
  }
  // One look may pass somebody over: the kernel's list of children is exact only while none of them ends, and those of
  // other tests may. The agent looks again, too.
  testing::wait_until([&] {
    bury_orphans([&](pid_t pid) { return pid == awaited; });
    return process_state(orphan).letter == 0;
  });
  EXPECT_EQ(process_state(awaited).letter, 'Z');
  EXPECT_NE(process_state(living).letter, 0);
  kill(living, SIGKILL);
  EXPECT_EQ(waitpid(awaited, nullptr, 0), awaited);
  EXPECT_EQ(waitpid(living, nullptr, 0), living);
}

}  // namespace
}  // namespace lockstep::launch
