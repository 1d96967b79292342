#include "lockstep/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::trace {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

RankTrace of(int rank, int attempt = 0, const std::string& run = "a run", int world = 4) {
  return {.run = run, .attempt = attempt, .rank = rank, .world = world, .phase = "forward"};
}

TEST(TraceFile, FoldersAreSearchedToTheirEnds) {
  const testing::ScratchFolder folder;
  write_trace(folder.file("attempt_0/2"), of(2));
  write_trace(folder.file("attempt_0/0"), of(0));
  folder.write("attempt_0/0/stdout.log", "no trace");
  folder.write("attempt_0/0/trace_attempt_0_rank_1.json.tmp", "no trace");
  const std::vector<RankTrace> traces = read_traces({folder.path()});
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces[0].rank, 0);
  EXPECT_EQ(traces[1].rank, 2);
  EXPECT_EQ(read_traces({folder.file("attempt_0/2/trace_attempt_0_rank_2.json")}).size(), 1u);
}

TEST(TraceFile, OfSeveralAttemptsOneIsPicked) {
  const testing::ScratchFolder folder;
  for (const int attempt : {0, 2, 10}) write_trace(folder.path(), of(0, attempt));
  EXPECT_THAT(usage_error([&] { (void)read_traces({folder.path()}); }),
              HasSubstr("has traces of the attempts 0, 2, 10: --attempt N picks one"));
  EXPECT_EQ(read_traces({folder.path()}, 2).at(0).attempt, 2);
  EXPECT_THAT(usage_error([&] { (void)read_traces({folder.path()}, 1); }), HasSubstr("no traces of attempt 1, but of"));
}

TEST(TraceFile, WhatDoesNotBelongTogetherIsNamed) {
  const auto refusal = [](const RankTrace& other) {
    return usage_error([&] { check_together({of(0), of(1), other}, {"a", "b", "c"}); });
  };
  EXPECT_EQ(refusal(of(2, 0, "another")), "a and c are of different runs: 'a run' and 'another'");
  EXPECT_EQ(refusal(of(2, 1)), "a and c are of different attempts of a run: 0 and 1");
  EXPECT_EQ(refusal(of(2, 0, "a run", 5)), "a and c are of worlds of 4 and 5 ranks");
  EXPECT_EQ(refusal(of(1)), "b and c are both of rank 1");
  RankTrace first = of(0), other = of(1);
  first.groups = {{"world/1", {0, 1}}};
  other.groups = {{"world/1", {1, 2}}};
  EXPECT_EQ(usage_error([&] {
              check_together({first, other}, {"a", "b"});
            }),
            "a and b have different ranks in group 'world/1'");
  EXPECT_NO_THROW(check_together({of(3), of(0)}, {"a", "b"}));
}

TEST(TraceFile, WhatCannotBeReadIsNamed) {
  const testing::ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { (void)read_traces({folder.path()}); }), HasSubstr("has no trace"));
  EXPECT_THAT(usage_error([&] { (void)read_traces({folder.file("none.json")}); }),
              HasSubstr("none.json: cannot be read"));
  EXPECT_THAT(usage_error([] { (void)read_traces({"/dev/null"}); }), HasSubstr("/dev/null: cannot be read"));
  EXPECT_THAT(usage_error([&] { (void)read_traces({folder.write("a.json", "{\"format\":")}); }),
              HasSubstr("a.json: is no whole trace"));
}

TEST(TraceFile, IsWrittenWholeOrNotAtAll) {
  const testing::ScratchFolder folder;
  write_trace(folder.path(), of(0));
  EXPECT_EQ(folder.entries(), 1u) << "nothing is left beside it";
  EXPECT_THROW(write_trace("/proc/none", of(0)), Error);
}

}  // namespace
}  // namespace lockstep::trace
