#include "lockstep/launch/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ShellWords, AreQuotedWhereNeeded) {
  EXPECT_EQ(shell_words({"a/b-c.py", "", "x y", "it's", "$HOME"}), "a/b-c.py '' 'x y' 'it'\\''s' '$HOME'");
}

TEST(DescribePlan, SaysWhatEveryWorkerGets) {
  const Plan plan{.command = {"p", "${local_rank}"}, .workers = 2, .max_restarts = 3, .no_restart_codes = {2}};
  const std::string text = describe_plan(plan, {"HOME=/h"}, 4);
  EXPECT_THAT(text, AllOf(HasSubstr("workers: 2 on 4 cores"), HasSubstr("at most 3, not after exit code 2"),
                          HasSubstr("rank 1: p 1\n"), HasSubstr("  RANK=1\n"), HasSubstr("OMP_NUM_THREADS=2"),
                          HasSubstr("MASTER_PORT=(a free one)"), Not(HasSubstr("HOME"))));
}

}  // namespace
}  // namespace lockstep::launch
