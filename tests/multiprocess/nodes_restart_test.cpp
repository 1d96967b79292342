// What a restart over several nodes waits for, without a clock: every wait that has a limit (the silence of a node, the
// last call, the time to join, the grace period) has one far beyond what a test waits for. Where one of them is waited
// out that need not be, the test fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/multiprocess/nodes_fixture.h"
#include "tests/support/job.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;

std::vector<std::string> with_long_waits(const std::string& nnodes, const std::string& is_host,
                                         const std::string& keep_alive = "1000") {
  return {"--nnodes",
          nnodes,
          "--max-restarts",
          "1",
          "--grace-period",
          "1000",
          "--rdzv-conf",
          "last_call_timeout=1000,join_timeout=1000,is_host=" + is_host + ",keep_alive_interval=" + keep_alive};
}

// An agent that dies before it has read what it was sent leaves a reset in place of a closed connection. That says
// nothing of its workers, so its silence is waited for.
constexpr const char* kOfAReset = "0.5";

constexpr const char* kTwoAttempts =
    "echo $RANK of $WORLD_SIZE try $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000";

TEST_F(NodesTest, AllStartAgainAsSoonAsTheWorkersHaveEnded) {
  Job& host = agent(with_long_waits("1:2", "1"), kTwoAttempts);
  Job& other = agent(with_long_waits("1:2", "0"), kTwoAttempts);
  host.wait_for_lines(1);
  other.wait_for_lines(1);
  kill(testing::pid_of_rank(other, 1), SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(other.wait(), 0) << other.err();
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 2 try 1"));
  EXPECT_THAT(testing::lines(other.out()), ElementsAre("1 of 2 try 0", "1 of 2 try 1"));
  expect_nothing_left();
}

// The one that is left has been called before.
TEST_F(NodesTest, TheOthersGoOnAsSoonAsANodeIsLost) {
  Job& host = agent(with_long_waits("1:2", "1", kOfAReset), kTwoAttempts);
  Job& lost = agent(with_long_waits("1:2", "0", kOfAReset), kTwoAttempts);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 1 try 1"));
  EXPECT_THAT(host.err(), AllOf(HasSubstr(") is lost: "), HasSubstr("restart 1 of 1")));
  expect_nothing_left();
}

TEST_F(NodesTest, ASpareStepsInAsSoonAsANodeIsLost) {
  Job& host = agent(with_long_waits("2", "1", kOfAReset), kTwoAttempts);
  Job& lost = agent(with_long_waits("2", "0", kOfAReset), kTwoAttempts);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  Job& spare = agent(with_long_waits("2", "0", kOfAReset), kTwoAttempts);
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(spare.wait(), 0) << spare.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 2 try 1"));
  EXPECT_EQ(spare.out(), "1 of 2 try 1\n");
  expect_nothing_left();
}

TEST_F(NodesTest, AllEndAsSoonAsTheHostingAgentOfTwoIsLost) {
  Job& host = agent(with_long_waits("1:2", "1", kOfAReset), kTwoAttempts);
  Job& other = agent(with_long_waits("1:2", "0", kOfAReset), kTwoAttempts);
  host.wait_for_lines(1);
  other.wait_for_lines(1);
  host.signal(SIGKILL);
  EXPECT_EQ(other.wait(), 1);
  EXPECT_THAT(other.err(), HasSubstr("start the same command again"));
  EXPECT_EQ(host.wait(), 128 + SIGKILL);
  expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
