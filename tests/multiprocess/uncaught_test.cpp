// An exception that leaves main() of a program built on the library.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Uncaught, IsToldWithRankStepAndText) {
  const testing::ScratchFolder folder;
  testing::Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "--report", folder.file("report.json"), UNCAUGHT_WORKER});
  EXPECT_EQ(job.wait(), 128 + SIGABRT) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("rank 1 failed: killed by SIGABRT"));
  EXPECT_THAT(job.err(), HasSubstr("cause: rank 1, step 3, outside a step: the learning rate is nan\n"));
  EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("GroupAborted"))) << "the follower has nothing to add";
  EXPECT_TRUE(job.nothing_left());
  const auto report = nlohmann::json::parse(testing::read_file(folder.file("report.json")));
  const auto& failure = report["attempts"][0]["first_failure"];
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["step"], 3);
  EXPECT_EQ(failure["message"], "the learning rate is nan");
}

// Every rank finds it; the first says so, and another start would not help.
TEST(Uncaught, WrongInputIsOneLineAndNoReasonToStartAgain) {
  testing::Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", "--max-restarts", "3", UNCAUGHT_WORKER, "usage"});
  EXPECT_EQ(job.wait(), kExitUsage) << job.err();
  EXPECT_THAT(job.err(), ::testing::MatchesRegex("lockstep: error: rank [01]: cannot open 'table.csv'\n"
                                                 "lockstep: not restarted: bad input stays bad\n"));
  testing::Job alone({UNCAUGHT_WORKER, "usage"}, {"OMP_NUM_THREADS=2"});
  EXPECT_EQ(alone.wait(), kExitUsage) << alone.err();
  EXPECT_THAT(alone.err(), ::testing::EndsWith("lockstep: error: cannot open 'table.csv'\n"));
}

// As a communication hook's: the call that throws has told the group already, which is no reason to be silent.
TEST(Uncaught, AnErrorThatTheGroupHasHeardIsStillTold) {
  testing::Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", UNCAUGHT_WORKER, "told"}, {"OMP_NUM_THREADS=1"});
  EXPECT_EQ(job.wait(), kExitUsage);
  EXPECT_EQ(job.err(), "lockstep: error: rank 1: the hook made no tensor\n");
}

TEST(Uncaught, AnErrorBehindTheGroupsEndIsInTheReport) {
  testing::Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", UNCAUGHT_WORKER, "left"});
  EXPECT_EQ(job.wait(), kExitFailure);
  EXPECT_THAT(job.err(), HasSubstr("lockstep: rank 1 failed: exit code 1"));
  EXPECT_THAT(job.err(), HasSubstr("lockstep:   cause: cannot write 'rows.csv'\n"));
}

// Under a launcher that takes the first error file for the cause.
TEST(Uncaught, WhoHasOnlyHeardOfAFailureWritesNoErrorFile) {
  const testing::ScratchFolder folder;
  const std::string port = std::to_string(20'000 + getpid() % 10'000);
  testing::Job job({"/bin/sh", "-c",
                    "cd " + folder.path() +
                        "; export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
                        "; for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank TORCHELASTIC_ERROR_FILE=$PWD/$rank " +
                        UNCAUGHT_WORKER + " rethrown & done; wait; ls"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "trace_attempt_0_rank_0.json\n");  // neither '0' nor '1', the error files
  EXPECT_THAT(job.err(), HasSubstr("rank 1"));
}

// libtorch's own what() is a message and pages of addresses.
TEST(Uncaught, LibtorchsErrorsComeWithoutItsCallStackUnlessAskedFor) {
  const std::vector<std::string> command = {LOCKSTEP_PROGRAM, "run", "-n", "2", UNCAUGHT_WORKER, "torch"};
  testing::Job job(command, {"TORCH_SHOW_CPP_STACKTRACES=0"});
  EXPECT_EQ(job.wait(), 128 + SIGABRT);
  EXPECT_THAT(job.err(), HasSubstr("cause: rank 1, step 3, outside a step: "));
  EXPECT_THAT(job.err(), HasSubstr("terminate called after throwing an error of libtorch: "));
  EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("frame #0")));
  testing::Job asked(command, {"TORCH_SHOW_CPP_STACKTRACES=1"});
  EXPECT_EQ(asked.wait(), 128 + SIGABRT);
  EXPECT_THAT(asked.err(), HasSubstr("frame #0"));
}

}  // namespace
}  // namespace lockstep
