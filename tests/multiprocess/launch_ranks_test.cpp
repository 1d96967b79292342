// Ranks and the agent's segment: as many as a machine has cores for, and one that outlives its attempt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;

TEST(Ranks, AsManyAsAMachineHasCores) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "512", TOY_WORKER, "meet"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  const std::vector<std::string> said = testing::lines(job.out());
  EXPECT_EQ(said.size(), 512u);
  const std::set<std::string> all(said.begin(), said.end());
  EXPECT_EQ(all.size(), 512u);
  EXPECT_TRUE(all.contains("rank 511 of 512"));
  EXPECT_TRUE(job.nothing_left());
}

// The worker is a shell whose child is the rank, in a session of its own: the agent sees the shell's end only.
TEST(Ranks, OneThatOutlivesItsAttemptDoesNotReachTheNext) {
  const testing::ScratchFolder folder;
  const std::string said = folder.file("said");
  const std::string script = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then setsid " TOY_WORKER " outlive > " + said +
                             " & until grep -q joined " + said +
                             "; do sleep 0.01; done; exit 3; fi; exec " TOY_WORKER " outlive";
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "1", "--max-restarts", "1", "sh", "-c", script});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), HasSubstr("restart 1 of 1"));
  EXPECT_THAT(job.out(), HasSubstr("rank 0 of 1, attempt 2"));
  EXPECT_TRUE(job.nothing_left(std::chrono::seconds(20)));
  EXPECT_THAT(testing::read_file(said), HasSubstr("refused: agent: this process belongs to an attempt that is over"));
}

}  // namespace
}  // namespace lockstep
