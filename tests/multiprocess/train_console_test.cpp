// A run whose terminal stands still: Ctrl-S, a stalled ssh session.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"
#include "tests/support/terminal.h"
#include "tests/support/train_run.h"
#include "tests/support/wait_until.h"

namespace lockstep {
namespace {

using testing::Job;
using testing::read_file;

TEST(TrainConsole, ATerminalThatStandsStillHoldsUpNoStep) {
  const testing::Terminal terminal;
  const testing::ScratchFolder folder;
  terminal.stop();
  Job job({"/bin/sh", "-c", "exec \"$@\" > " + terminal.name(), "sh", LOCKSTEP_PROGRAM, "train", "-n", "2", "--model",
           "mlp", "--max-steps", "300", "--print-freq", "1", "--timeout", "5", "--output-dir", folder.file("run")});
  testing::wait_until(
      [&] { return read_file(folder.file("run/metrics.jsonl")).find("weights_hash") != std::string::npos; });
  // The others end, although the last line waits for longer than they would.
  const std::size_t all = job.living().size();
  testing::wait_until([&] { return job.living().size() < all; });
  terminal.go_on();
  const std::string seen = terminal.read_until([&] { return job.living().empty(); });
  EXPECT_EQ(job.wait(), 0) << job.err();
  // The results are there, in order; of the progress, what was shown.
  EXPECT_LT(seen.find("evaluation: loss"), seen.find("done: 300 steps"));
  EXPECT_NE(seen.find("done: 300 steps"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
