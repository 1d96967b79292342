#include "lockstep/base/stop_on.h"

#include <gtest/gtest.h>

#include <csignal>

#include "lockstep/base/error.h"

namespace lockstep::base {
namespace {

volatile std::sig_atomic_t calls = 0;
void count(int) { calls = calls + 1; }

TEST(StopOn, RemembersSignalsAndGivesThemBack) {
  const auto before = std::signal(SIGUSR2, count);
  {
    const StopOn stop({SIGUSR1, SIGUSR2});
    EXPECT_FALSE(StopOn::requested());
    std::raise(SIGUSR2);
    EXPECT_TRUE(StopOn::requested());
    EXPECT_EQ(calls, 0);
  }
  std::raise(SIGUSR2);
  EXPECT_EQ(calls, 1);
  {
    const StopOn again({SIGUSR1});
    EXPECT_FALSE(StopOn::requested()) << "what came before it asks it for nothing";
    EXPECT_THROW(StopOn({SIGUSR2}), UsageError);
  }
  std::signal(SIGUSR2, before);
}

TEST(StopOn, ASignalThatCannotBeCaughtIsRefused) {
  const auto before = std::signal(SIGUSR2, count);
  EXPECT_THROW(StopOn({SIGUSR2, SIGKILL}), UsageError);
  calls = 0;
  std::raise(SIGUSR2);
  EXPECT_EQ(calls, 1) << "the others are as they were";
  const StopOn fine({SIGUSR1});
  std::signal(SIGUSR2, before);
}

}  // namespace
}  // namespace lockstep::base
