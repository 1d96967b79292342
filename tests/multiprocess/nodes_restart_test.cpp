// What a restart over several nodes waits for, without a clock: every wait that has a limit (the silence of a node, the
// last call, the time to join, the grace period) has one far beyond what a test waits for. Where one of them is waited
// out that need not be, the test fails.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/multiprocess/nodes_fixture.h"
#include "tests/support/job.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;

std::vector<std::string> with_long_waits(const std::string& nnodes, const std::string& is_host) {
  return {"--nnodes",       nnodes,
          "--max-restarts", "1",
          "--grace-period", "1000",
          "--rdzv-conf",    "keep_alive_interval=1000,last_call_timeout=1000,join_timeout=1000,is_host=" + is_host};
}

// Whether somebody who is connected to the agent that hosts at this address has not read all that it was sent.
bool somebody_has_unread(const std::string& address) {
  in_addr host{};
  EXPECT_EQ(inet_pton(AF_INET, address.c_str(), &host), 1);
  char endpoint[32];
  std::snprintf(endpoint, sizeof endpoint, "%08X:%04X", host.s_addr, 29400U);
  std::ifstream sockets("/proc/net/tcp");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream words(line);
    std::string number, own, other, state, queues;  // of bytes to be sent and to be read: "00000000:00000000"
    words >> number >> own >> other >> state >> queues;
    if (other == endpoint && !queues.ends_with(":00000000")) return true;
  }
  return false;
}

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

// Its connection is closed: no silence is waited for, and the one that is left has been called before.
TEST_F(NodesTest, TheOthersGoOnAsSoonAsANodeIsLost) {
  Job& host = agent(with_long_waits("1:2", "1"), kTwoAttempts);
  Job& lost = agent(with_long_waits("1:2", "0"), kTwoAttempts);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 1 try 1"));
  EXPECT_THAT(host.err(), AllOf(HasSubstr(") is lost: "), HasSubstr("restart 1 of 1")));
  expect_nothing_left();
}

// The kernel would end its connection with a reset, which says nothing of its workers: the reaper is before it.
TEST_F(NodesTest, TheOthersGoOnAsSoonAsANodeIsLostThatHadNotReadAll) {
  Job& host = agent(with_long_waits("1:2", "1"), kTwoAttempts);
  Job& lost = agent(with_long_waits("1:2", "0"), kTwoAttempts);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  lost.signal(SIGSTOP);
  kill(testing::pid_of_rank(host, 0), SIGKILL);  // of which the other is told
  testing::wait_until([this] { return somebody_has_unread(address_); });
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 1 try 1"));
  expect_nothing_left();
}

TEST_F(NodesTest, ASpareStepsInAsSoonAsANodeIsLost) {
  Job& host = agent(with_long_waits("2", "1"), kTwoAttempts);
  Job& lost = agent(with_long_waits("2", "0"), kTwoAttempts);
  host.wait_for_lines(1);
  lost.wait_for_lines(1);
  Job& spare = agent(with_long_waits("2", "0"), kTwoAttempts);
  lost.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_EQ(spare.wait(), 0) << spare.err();
  EXPECT_EQ(lost.wait(), 128 + SIGKILL);
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("0 of 2 try 0", "0 of 2 try 1"));
  EXPECT_EQ(spare.out(), "1 of 2 try 1\n");
  expect_nothing_left();
}

TEST_F(NodesTest, AllEndAsSoonAsTheHostingAgentOfTwoIsLost) {
  Job& host = agent(with_long_waits("1:2", "1"), kTwoAttempts);
  Job& other = agent(with_long_waits("1:2", "0"), kTwoAttempts);
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
