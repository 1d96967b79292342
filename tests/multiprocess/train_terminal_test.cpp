// The last committed step of a job that is killed is saved where nobody reads what is said of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiprocess/resumed_run.h"
#include "tests/support/terminal.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using ::testing::Not;

// Ctrl-S: who saves gives up its words after ten seconds, then the agent its own.
TEST_F(TrainResume, ATerminalThatStandsStillDoesNotHoldUpTheSave) {
  const testing::Terminal terminal;
  terminal.stop();
  Job job({"/bin/sh", "-c", "exec \"$@\" 2> " + terminal.name(), "sh", LOCKSTEP_PROGRAM, "run", "-n", "1",
           UNLINKED_WORKER, folder_.file("saved")});
  EXPECT_EQ(job.wait(), 137);
  EXPECT_EQ(std::filesystem::read_symlink(folder_.file("saved/last")), "step-00000002");
  terminal.go_on();
  EXPECT_THAT(terminal.read_rest(), Not(HasSubstr("not saved")));
}

}  // namespace
}  // namespace lockstep
