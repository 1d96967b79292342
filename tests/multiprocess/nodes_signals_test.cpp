// Jobs over several nodes that are asked to end, by signals and by bad input, while something else goes wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/multiprocess/nodes_fixture.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;

// The failure came first, and its text is not lost with the agent that goes.
TEST_F(NodesTest, ASignalWhileTheWorkersEndTakesNoFailureAway) {
  const testing::ScratchFolder folder;
  const std::string script =
      "[ $RANK = 1 ] && trap 'echo told' TERM; echo; "
      "[ $RANK = 0 ] && { until [ -e " +
      folder.file("go") + " ]; do sleep 0.05; done; exit 3; }; sleep 1000 & wait; sleep 1000";
  const std::vector<std::string> flags{"--nnodes", "1:2", "--grace-period", "2", "--rdzv-conf"};
  const auto with = [&](const char* conf) {
    std::vector<std::string> all = flags;
    all.emplace_back(conf);
    return all;
  };
  Job& host = agent(with("is_host=1"), script);
  Job& other = agent(with("is_host=0"), script);
  host.wait_for_lines(1);
  other.wait_for_lines(1);
  std::ofstream(folder.file("go")).close();
  other.wait_for_lines(2);
  other.signal(SIGTERM);
  for (Job* job : {&host, &other}) {
    EXPECT_EQ(job->wait(), 3) << job->err();
    EXPECT_THAT(job->err(), HasSubstr("lockstep: rank 0 failed: exit code 3"));
  }
  EXPECT_EQ(testing::lines(host.out()).size(), 1u) << "started again with no restart left";
  expect_nothing_left();
}

// The worker prints it where it runs; the others would end without a word.
TEST_F(NodesTest, BadInputIsToldOnTheOtherNodes) {
  const std::string script = "[ $GROUP_RANK = 1 ] && exec " TOY_WORKER " fail 2; sleep 1000";
  Job& host = agent({"--nnodes", "2", "--rdzv-conf", "is_host=1"}, script);
  Job& other = agent({"--nnodes", "2", "-n", "2", "--rdzv-conf", "is_host=0"}, script);
  EXPECT_EQ(host.wait(), 2);
  EXPECT_EQ(other.wait(), 2);
  EXPECT_THAT(host.err(), AllOf(HasSubstr("lockstep: rank 2 on "), HasSubstr(": wrong use or bad input: ")));
  EXPECT_THAT(other.err(), HasSubstr("the toy is broken"));
  EXPECT_THAT(other.err(), ::testing::Not(HasSubstr("wrong use or bad input")));
  expect_nothing_left();
}

// Its own grace period is over, the other node's is not.
TEST_F(NodesTest, WhoIsAskedToEndDoesNotSayThatAllWentWell) {
  const std::string script = "trap 'echo told' TERM; [ $RANK = 1 ] && exit 0; echo; sleep 1000 & wait; sleep 1000";
  Job& host = agent({"--nnodes", "2", "--grace-period", "6", "--rdzv-conf", "is_host=1"}, script);
  Job& other = agent({"--nnodes", "2", "--grace-period", "0", "--rdzv-conf", "is_host=0"}, script);
  host.wait_for_lines(1);
  usleep(300'000);  // for the end of the other's worker
  other.signal(SIGINT);
  EXPECT_EQ(other.wait(), 128 + SIGINT) << other.err();
  host.wait();
  expect_nothing_left();
}

// Of an agent whose job starts again and again.
std::vector<std::string> restarting(const char* nodes, const char* conf) {
  return {"--nnodes", nodes, "--max-restarts", "20", "--rdzv-conf", conf};
}

// In the wait before a restart there is no worker to be told.
TEST_F(NodesTest, ASignalBeforeARestartEndsAll) {
  const std::string script = "[ $RANK = 0 ] && { sleep 0.1; exit 3; }; sleep 1000";
  Job& host = agent(restarting("1:2", "is_host=1"), script);
  Job& other = agent(restarting("1:2", "is_host=0"), script);
  testing::wait_until([&] { return host.err().find("in 800 ms") != std::string::npos; });
  host.signal(SIGTERM);
  EXPECT_EQ(host.wait(), 128 + SIGTERM) << host.err();
  EXPECT_EQ(other.wait(), 128 + SIGTERM) << other.err();
  EXPECT_THAT(other.err(), HasSubstr(") was ended by SIGTERM"));
  EXPECT_THAT(other.err(), ::testing::Not(HasSubstr("is lost")));
  expect_nothing_left();
}

// A member's, in the same wait: the host would look for it until join_timeout is over.
TEST_F(NodesTest, AMembersSignalBeforeARestartEndsAllWhoAreTooFewWithoutIt) {
  const std::string script = "[ $RANK = 0 ] && { sleep 0.1; exit 3; }; sleep 1000";
  Job& host = agent(restarting("2", "is_host=1"), script);
  Job& other = agent(restarting("2", "is_host=0"), script);
  testing::wait_until([&] { return other.err().find("in 800 ms") != std::string::npos; });
  other.signal(SIGTERM);
  for (Job* job : {&host, &other}) EXPECT_EQ(job->wait(), 128 + SIGTERM) << job->err();
  EXPECT_THAT(host.err(), AllOf(HasSubstr("lockstep: the agent on "), HasSubstr(" was ended by SIGTERM")));
  expect_nothing_left();
}

TEST_F(NodesTest, AMembersSignalBeforeARestartLeavesTheOthersToIt) {
  const std::string script = "[ $WORLD_SIZE = 1 ] && exit 0; [ $RANK = 0 ] && { sleep 0.1; exit 3; }; sleep 1000";
  Job& host = agent(restarting("1:2", "last_call_timeout=2,is_host=1"), script);
  Job& other = agent(restarting("1:2", "last_call_timeout=2,is_host=0"), script);
  testing::wait_until([&] { return other.err().find("in 800 ms") != std::string::npos; });
  other.signal(SIGTERM);
  EXPECT_EQ(other.wait(), 128 + SIGTERM) << other.err();
  EXPECT_EQ(host.wait(), 0) << host.err();
  EXPECT_THAT(host.err(),
              AllOf(HasSubstr(" was ended: the others go on without it"), ::testing::Not(HasSubstr("lost"))));
  expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
