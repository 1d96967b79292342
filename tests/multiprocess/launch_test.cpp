// Process trees under `lockstep run`: how they end, and that nothing of them is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <random>

#include "tests/support/job.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;
using testing::wait_until;

// `lockstep run <options> sh -c <script>`.
std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), {LOCKSTEP_PROGRAM, "run"});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

std::vector<std::string> toy(const std::string& workers, std::vector<std::string> task) {
  task.insert(task.begin(), {LOCKSTEP_PROGRAM, "run", "-n", workers, TOY_WORKER});
  return task;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Launch, AllWell) {
  Job job(shell({"-n", "3"}, "echo $RANK"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(testing::lines(job.out()), ::testing::UnorderedElementsAre("0", "1", "2"));
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, WorkersShareTheAgentsSegment) {
  Job job(toy("4", {"meet"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(testing::lines(job.out()),
              ::testing::UnorderedElementsAre("rank 0 of 4", "rank 1 of 4", "rank 2 of 4", "rank 3 of 4"));
}

TEST(Launch, TheExitCodeOfTheFirstFailureIsPassedThrough) {
  Job job(shell({"-n", "3"}, "if [ $RANK = 1 ]; then exit 3; fi; sleep 1000"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 1 failed: exit code 3"), HasSubstr("2 more ranks ended after it")));
  EXPECT_EQ(testing::lines(job.err()).size(), 2u) << job.err();
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, AKilledWorkerIsToldWithStepAndPhase) {
  Job job(toy("3", {"die"}));
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 1 failed: killed by SIGKILL"), HasSubstr("step 17, update")));
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, AnErrorOfAWorkerArrivesOnce) {
  // Bad input: the worker has said all there is to say, and was given the time to.
  Job usage(toy("4", {"fail", "2"}));
  EXPECT_EQ(usage.wait(), 2);
  EXPECT_EQ(usage.err(), "lockstep: error: the toy is broken\n");
  EXPECT_TRUE(usage.nothing_left());

  Job failure(toy("4", {"fail", "1"}));
  EXPECT_EQ(failure.wait(), 1);
  EXPECT_EQ(count(failure.err(), "lockstep: error:"), 1) << failure.err();
  EXPECT_THAT(failure.err(), AllOf(HasSubstr("rank 1 failed: exit code 1"), HasSubstr("step 17, update")));
}

TEST(Launch, AWorkerThatIsDoneEarlyIsNoFailure) {
  Job job(shell({"-n", "2"}, "if [ $RANK = 0 ]; then exit 0; fi; sleep 0.3; echo later"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "later\n");
}

TEST(Launch, WhatWorkersLeaveInTheirGroupsIsEnded) {
  Job job(shell({"-n", "2"}, "sleep 1000 & exit 0"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, WorkersThatIgnoreSigtermAreKilledAfterTheGracePeriod) {
  Job job(shell({"-n", "2", "--grace-period=1"},
                "if [ $RANK = 1 ]; then sleep 0.2; exit 4; fi; trap '' TERM; while :; do sleep 1000; done"));
  EXPECT_EQ(job.wait(), 4);
  EXPECT_TRUE(job.nothing_left());
}

// The processes that the workers of ranks 0 and 1 named, by lines "<rank> <pid>".
std::array<pid_t, 2> named_processes(const Job& job) {
  std::array<pid_t, 2> pids{};
  for (const std::string& line : job.wait_for_lines(2)) pids.at(std::size_t(line[0] - '0')) = std::stoi(line.substr(2));
  return pids;
}

TEST(Launch, AGrandchildHasTheGracePeriodToo) {
  // The shell dies of SIGTERM at once; the program it runs has something to save.
  Job job(shell({"-n", "2"},
                "if [ $RANK = 1 ]; then echo 1 $$; exec sleep 1000; fi;"
                "sh -c 'trap \"sleep 0.3; echo saved; exit 0\" TERM; echo 0 $$; while :; do sleep 0.01; done' & wait"));
  kill(named_processes(job)[1], SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.out(), HasSubstr("saved"));
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, AStoppedWorkerIsKilledAtOnce) {
  // With a grace period of an hour, only "at once" ends before the test's deadline.
  Job job(shell({"-n", "2", "--grace-period=3600"}, "echo $RANK $$; exec sleep 1000"));
  const auto pids = named_processes(job);
  kill(pids[0], SIGSTOP);
  wait_until([&] { return testing::process_state(pids[0]) == 'T'; });
  kill(pids[1], SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_THAT(job.err(), HasSubstr("rank 1 failed: killed by SIGKILL"));
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, AStoppedGrandchildIsWoken) {
  Job job(shell({"-n", "2", "--grace-period=3600"},
                "if [ $RANK = 1 ]; then echo 1 $$; exec sleep 1000; fi; sleep 1000 & echo 0 $!; wait"));
  const auto pids = named_processes(job);
  kill(pids[0], SIGSTOP);
  wait_until([&] { return testing::process_state(pids[0]) == 'T'; });
  kill(pids[1], SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, SignalsAreForwardedAsTheyAre) {
  for (const auto& [number, name] : {std::pair(SIGINT, "INT"), std::pair(SIGTERM, "TERM"), std::pair(SIGHUP, "HUP")}) {
    Job job(shell({"-n", "2"},
                  "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM;"
                  "trap 'echo got HUP; exit 0' HUP; echo ready; while :; do sleep 0.01; done"));
    job.wait_for_lines(2);
    job.signal(number);
    EXPECT_EQ(job.wait(), 128 + number);
    EXPECT_EQ(count(job.out(), std::string("got ") + name), 2) << job.out();
    EXPECT_TRUE(job.nothing_left());
  }
}

TEST(Launch, ASecondCtrlCKillsAtOnce) {
  Job job(shell({"-n", "2", "--grace-period=3600"}, "trap 'echo no' INT; echo ready; while :; do sleep 0.01; done"));
  job.wait_for_lines(2);
  job.signal(SIGINT);
  job.wait_for_lines(4);
  EXPECT_GE(job.living().size(), 3u) << "the workers refused, the agent waits";
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 128 + SIGINT);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, AKilledAgentLeavesNothing) {
  Job job(shell({"-n", "3"}, "trap '' TERM INT HUP; sleep 1000 & sh -c 'sleep 1000; :' & echo ready; wait"));
  job.wait_for_lines(3);
  EXPECT_GE(job.living().size(), 10u);
  job.signal(SIGKILL);
  EXPECT_TRUE(job.nothing_left());
  job.wait();
}

TEST(Launch, AnAgentKilledTogetherWithItsWorkersLeavesNoGrandchild) {
  Job job(shell({"-n", "2"}, "sleep 1000 & echo $$; wait"));
  const auto pids = job.wait_for_lines(2);
  job.signal(SIGSTOP);
  for (const std::string& pid : pids) kill(std::stoi(pid), SIGKILL);
  job.signal(SIGKILL);
  EXPECT_TRUE(job.nothing_left());
  job.wait();
}

TEST(Launch, AnAgentKilledAtAnyInstantLeavesNothing) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    Job job(shell({"-n", "8"}, "sleep 1000 & wait"));
    usleep(useconds_t(random() % 30'000));
    job.signal(SIGKILL);
    ASSERT_TRUE(job.nothing_left()) << "round " << round;
    job.wait();
  }
}

TEST(Launch, TheAgentsSegmentIsClosedToTheWorkers) {
  Job job(shell({"-n", "1"}, "ls -l /proc/self/fd"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.out(), AllOf(Not(HasSubstr("lockstep-segment")), Not(HasSubstr("pidfd")), Not(HasSubstr("pipe:"))));
}

TEST(Launch, SixtyFourWorkers) {
  Job job(toy("64", {"meet"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(testing::lines(job.out()).size(), 64u);
  EXPECT_TRUE(job.nothing_left());
}

TEST(Launch, WorkersMeetInTheAgentsStore) {
  Job job(toy("2", {"store"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), ::testing::UnorderedElementsAre("0: 01, new, sum 3", "1: 01, new, sum 3"));
}

TEST(Launch, MpirunStartsTheSameWorkers) {
  if (access("/usr/bin/mpirun", X_OK) != 0) {
    ASSERT_EQ(getenv("LOCKSTEP_REQUIRE_LAUNCHERS"), nullptr) << "no mpirun";  // make test has installed it
    GTEST_SKIP() << "no mpirun on this machine";
  }
  std::vector<std::string> command = testing::mpirun(3);
  command.insert(command.end(), {TOY_WORKER, "meet"});
  Job job(command);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(testing::lines(job.out()), ::testing::UnorderedElementsAre("rank 0 of 3", "rank 1 of 3", "rank 2 of 3"));
}

}  // namespace
}  // namespace lockstep
