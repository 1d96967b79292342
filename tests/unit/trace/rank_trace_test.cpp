#include "lockstep/trace/rank_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

RankTrace example() {
  return {.run = "lockstep 7",
          .attempt = 1,
          .rank = 2,
          .world = 4,
          .host = "node-a",
          .pid = 71,
          .time = 1'700'000'000'000'000,
          .step = 12,
          .phase = "forward",
          .failure = Failure{.rank = 3, .step = 11, .phase = "update", .cause = "killed"},
          .begun = 41,
          .groups = {{"world", {0, 1, 2, 3}}, {"world/1", {2, 3}}},
          .calls = {{.number = 40,
                     .kind = "all_reduce",
                     .dtype = "Float",
                     .sizes = {2, 3},
                     .elements = 6,
                     .detail = "op sum",
                     .label = "bucket 3",
                     .phase = "forward",
                     .step = 12,
                     .begin = 1'699'999'999'000'000,
                     .end = 1'699'999'999'000'100},
                    {.number = 1,
                     .group = 1,
                     .kind = "recv",
                     .dtype = "Long",
                     .sizes = {1},
                     .elements = 1,
                     .detail = "tag 0",
                     .phase = "forward",
                     .step = 12,
                     .peer = 3,
                     .begin = 1'699'999'999'000'200}}};
}

TEST(RankTrace, IsReadAsItWasWritten) {
  const std::string text = format_trace(example());
  const RankTrace read = parse_trace(text, "file");
  EXPECT_EQ(format_trace(read), text);
  EXPECT_EQ(read.run, "lockstep 7");
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.groups, example().groups);
  EXPECT_EQ(read.calls, example().calls);
  ASSERT_TRUE(read.failure);
  EXPECT_EQ(read.failure->to_string(), "rank 3, step 11, update: killed");
  RankTrace empty{.phase = "outside a step"};
  EXPECT_FALSE(parse_trace(format_trace(empty), "file").failure);
}

TEST(RankTrace, WhateverATextHoldsItHasNoPowerOverATerminal) {
  RankTrace trace = example();
  trace.calls[0].kind = "all\x1b[31m_reduce\n";
  trace.host = "\xff";
  const RankTrace read = parse_trace(format_trace(trace), "file");
  EXPECT_EQ(read.calls[0].kind, "all\\x1b[31m_reduce\\n");
}

TEST(RankTrace, EveryFileThatIsCutShortIsRefused) {
  const std::string text = format_trace(example());
  for (std::size_t length = 0; length + 1 < text.size(); ++length)
    ASSERT_THAT(testing::usage_error([&] { (void)parse_trace(text.substr(0, length), "a.json"); }),
                StartsWith("a.json: is no whole trace: cut short or damaged"))
        << length;
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = format_trace(example());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RankTrace, WhatMakesNoSenseIsToldInALine) {
  const struct {
    const char *from, *to, *told;
  } cases[] = {
      {"\"version\":1", "\"version\":2", "is a trace of version 2; this program reads version 1"},
      {"lockstep trace", "another format", "is no trace of a rank"},
      {"\"rank\":2", "\"rank\":4", "'rank' is 4; from 0 to 3 expected"},
      {"\"rank\":2", "\"rank\":-1", "'rank' is -1; from 0 to 3 expected"},
      {"\"rank\":2", "\"rank\":1.5", "'rank' is no whole number"},
      {"\"world\":4", "\"world\":0", "'world' is 0; from 1 to"},
      {"\"begun\":41", "\"begun\":18446744073709551615", "'begun' is 18446744073709551615"},
      {"\"ranks\":[2,3]", "\"ranks\":[2,4]", "'rank of group world/1' is 4; from 0 to 3"},
      {"\"ranks\":[2,3]", "\"ranks\":[1,3]", "has group 'world/1', which rank 2 is not in"},
      {"\"name\":\"world/1\"", "\"name\":\"world\"", "has group 'world' twice"},
      {"\"group\":1", "\"group\":2", "'group' is 2; from 0 to 1"},
      {"\"peer\":3", "\"peer\":4", "'peer' is 4; from 0 to 3"},
      {"\"sizes\":[2,3]", "\"sizes\":[2,-3]", "'size' is -3"},
      {"\"number\":40", "\"number\":0", "'number' is 0; from 1"},
      {"\"host\":\"node-a\"", "\"host\":7", "'host' is no text"},
      {"\"attempt\":1,", "", "key 'attempt' not found"},
      {"\"version\":1", "\"version\":[[[[[[[[[[[[1]]]]]]]]]]]]", "nested too deep"},
  };
  for (const auto& [from, to, told] : cases)
    EXPECT_THAT(testing::usage_error([&, from = from, to = to] { (void)parse_trace(replaced(from, to), "a.json"); }),
                ::testing::AllOf(StartsWith("a.json: "), HasSubstr(told)));
  EXPECT_THAT(testing::usage_error([] { (void)parse_trace("[]", "a.json"); }), HasSubstr("is no trace of a rank"));
}

}  // namespace
}  // namespace lockstep::trace
