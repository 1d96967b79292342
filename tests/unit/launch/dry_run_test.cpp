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

TEST(DescribePlan, NamesRanksAsTheJobDoes) {
  const Plan plan{.command = {"p", "${local_rank}"}, .node = {.rank = 1, .nodes = 2, .first_rank = 4}};
  EXPECT_THAT(describe_plan(plan, {}, 4), AllOf(HasSubstr("rank 4: p 0\n"), HasSubstr("  RANK=4\n")));
}

}  // namespace
}  // namespace lockstep::launch
