#include "lockstep/launch/output/last_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;

TEST(LastLines, OfAnyFile) {
  const lockstep::testing::ScratchFolder scratch;
  const auto last = [&](const std::string& text, std::size_t count, std::size_t bytes = 1 << 16) {
    return last_lines(scratch.write("log", text), count, bytes);
  };
  EXPECT_THAT(last("", 2), ElementsAre());
  EXPECT_THAT(last("\n", 2), ElementsAre(""));
  EXPECT_THAT(last("a\nb\nc\n", 2), ElementsAre("b", "c"));
  EXPECT_THAT(last("a\nb\nc", 2), ElementsAre("b", "c"));
  EXPECT_THAT(last("a\r\n\nc\r\n", 5), ElementsAre("a", "", "c"));
  EXPECT_THAT(last("start\n10%\r20%\r30%\r", 5), ElementsAre("start", "30%"));
  EXPECT_THAT(last("abcdef\ngh\n", 5, 6), ElementsAre("ef", "gh"));
  EXPECT_THAT(last("a\n", 0), ElementsAre());
  EXPECT_THAT(last_lines(scratch.file("missing"), 20, 100), ElementsAre());
  EXPECT_THAT(last_lines(scratch.path(), 20, 100), ElementsAre());
}

TEST(LastLines, GoIntoJson) {
  EXPECT_EQ(valid_utf8("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"), "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(valid_utf8("a\xFF"
                       "b"),
            "a" + bad + "b");
  EXPECT_EQ(valid_utf8("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(valid_utf8("\xE2\x82"), bad + bad);  // cut
  std::string all;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) all += {char(a), char(b), char(a ^ b)};
  EXPECT_NO_THROW(nlohmann::json(valid_utf8(all)).dump());
}

}  // namespace
}  // namespace lockstep::launch
