// Nodes that come to a job whose workers make steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/multiprocess/nodes_fixture.h"
#include "tests/support/job.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Job;
using testing::NodesTest;
using ::testing::Not;

// No restart is left that it could cost.
TEST_F(NodesTest, HoweverAProgramEndsThatMakesRoomItIsNoFailure) {
  for (const char* code : {"0", "1", "75"}) {
    const std::string script = std::string("exec " TOY_WORKER " room ") + code + " 2";
    Job& host = agent({"--nnodes", "1:2", "--rdzv-conf", "is_host=1,last_call_timeout=0.01"}, script);
    host.wait_for_lines(1);
    Job& late = agent({"--nnodes", "1:2", "--rdzv-conf", "is_host=0,last_call_timeout=0.01"}, script);
    EXPECT_EQ(late.wait(), 0) << code << late.err();
    EXPECT_EQ(host.wait(), 0) << code << host.err();
    EXPECT_THAT(testing::lines(host.out()), ElementsAre("makes steps", "one of 2")) << code;
    EXPECT_THAT(testing::lines(late.out()), ElementsAre("one of 2")) << code;
    EXPECT_THAT(host.err(), AllOf(HasSubstr("starting again with other nodes: "), Not(HasSubstr("failed")))) << code;
  }
  expect_nothing_left();
}

// A worker that catches what its step throws, say, would hold all nodes until join_timeout: one of two; or all there
// are, so that the agent hears of no end.
TEST_F(NodesTest, WorkersThatDoNotLeaveAreEndedBehindTheGracePeriod) {
  struct Case {
    std::string workers, toy;
    std::size_t lines;
  };
  for (const Case& it : {Case{"2", "room 75 4 1", 2}, Case{"1", "room 75 2 0", 1}}) {
    SCOPED_TRACE(it.toy);
    const auto start = [&](const std::string& is_host) -> Job& {
      return agent({"--nnodes", "1:2", "-n", it.workers, "--grace-period", "0.2", "--rdzv-conf",
                    is_host + ",last_call_timeout=0.01,join_timeout=20"},
                   "exec " TOY_WORKER " " + it.toy);
    };
    Job& host = start("is_host=1");
    host.wait_for_lines(it.lines);
    Job& late = start("is_host=0");
    for (Job* job : {&host, &late}) EXPECT_EQ(job->wait(), 0) << job->err();
    EXPECT_THAT(host.err(), AllOf(HasSubstr("workers that did not end for a node that has come are ended"),
                                  HasSubstr("starting again with other nodes: "), Not(HasSubstr("failed"))));
  }
  expect_nothing_left();
}

TEST_F(NodesTest, WhereANodeMakesNoStepsNobodyWaitsForOne) {
  const std::string sleeps = "echo; [ $WORLD_SIZE = 3 ] || sleep 1000";
  Job& host =
      agent({"--nnodes", "1:3", "--rdzv-conf", "is_host=1,last_call_timeout=0.01"}, "exec " TOY_WORKER " room 75 3");
  host.wait_for_lines(1);
  Job& second = agent({"--nnodes", "1:3", "--rdzv-conf", "is_host=0,last_call_timeout=0.01"}, sleeps);
  host.wait_for_lines(2);
  second.wait_for_lines(1);
  Job& third = agent({"--nnodes", "1:3", "--rdzv-conf", "is_host=0,last_call_timeout=0.01"}, sleeps);
  for (Job* job : {&host, &second, &third}) EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_THAT(testing::lines(host.out()), ElementsAre("makes steps", "makes steps", "one of 3"));
  expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
