#include "lockstep/checkpoint/store/state_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/usage_error.h"
#include "tests/unit/checkpoint/store/a_checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::usage_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

TEST(StateJson, ComesBack) {
  SavedState state = testing::ACheckpoint(12).contents.state;
  EXPECT_EQ(parse_state(format_state(state), ""), state);
  state.metric = 1.0 / 3;
  state.average = true;
  state.average_updates = 7;
  state.seed = std::numeric_limits<std::uint64_t>::max();
  state.loss = std::nextafter(0.1, 1);
  state.gradient_norm = std::numeric_limits<double>::infinity();
  state.extra = "null";
  EXPECT_EQ(parse_state(format_state(state), ""), state);
  state.loss = std::nan("");
  EXPECT_TRUE(std::isnan(parse_state(format_state(state), "").loss));
}

// Earlier builds wrote none, and need none.
TEST(StateJson, ThePlaceMayBeThereInWords) {
  SavedState state = testing::ACheckpoint(12).contents.state;
  EXPECT_EQ(format_state(state).find("place"), std::string::npos);
  state.place = {{"epoch", 3}, {"batch", std::numeric_limits<std::int64_t>::max()}, {"low", -7}};
  const std::string text = format_state(state);
  EXPECT_THAT(text, HasSubstr("\"epoch\": 3"));
  EXPECT_EQ(parse_state(text, ""), state);
  const auto fault = [](const std::string& changed) { return usage_error([&] { parse_state(changed, "d"); }); };
  EXPECT_THAT(fault(replaced(text, "\"epoch\": 3", "\"epoch\": 3.5")),
              HasSubstr("'place.epoch' is something else, must be a whole number below 2^63"));
  EXPECT_THAT(fault(replaced(text, "9223372036854775807", "9223372036854775808")), HasSubstr("'place.batch'"));
  EXPECT_THAT(fault(replaced(text, "\"place\": {", "\"place\": 7, \"other\": {")), HasSubstr("'place' is something"));
}

TEST(StateJson, WhatIsMissingOrOfAnotherKindIsNamed) {
  const std::string whole = format_state(testing::ACheckpoint(12).contents.state);
  const auto fault = [](const std::string& text) { return usage_error([&] { parse_state(text, "d/state.json"); }); };
  EXPECT_THAT(fault(replaced(whole, "\"step\"", "\"stop\"")), AllOf(HasSubstr("'d/state.json'"), HasSubstr("'step'")));
  EXPECT_THAT(fault(replaced(whole, "\"seed\": 7", "\"seed\": -7")),
              HasSubstr("'seed' is something else, must be a number"));
  EXPECT_THAT(fault(replaced(whole, "\"shards\": 4", "\"shards\": 4000000000")), HasSubstr("below 2^31"));
  EXPECT_THAT(fault(replaced(whole, "\"loss\": 0.25", "\"loss\": \"a\"")), HasSubstr("'record.loss'"));
  EXPECT_THAT(fault(replaced(whole, "0001ff", "0001f")), HasSubstr("'kept.loader' is something else"));
  EXPECT_THAT(fault(replaced(whole, "0001ff", "0001fg")), HasSubstr("pairs of hexadecimal digits"));
  EXPECT_THAT(fault(replaced(whole, "\"format\": 1", "\"format\": 2")), HasSubstr("format 2, this program reads 1"));
  EXPECT_THAT(fault(whole.substr(0, whole.size() / 2)), HasSubstr("no valid JSON at offset"));
  EXPECT_THAT(fault("[]"), HasSubstr("no object"));
  EXPECT_THAT(fault(std::string(100'000, '[')), HasSubstr("nested more than 100 deep"));
}

TEST(StateJson, ExtraMustBeJson) {
  SavedState state;
  state.extra = "{mine";
  EXPECT_THAT(usage_error([&] { format_state(state); }), HasSubstr("checkpoint: extra is no valid JSON at offset 1"));
  state.extra = std::string(200, '[') + std::string(200, ']');
  EXPECT_THAT(usage_error([&] { format_state(state); }), HasSubstr("nested"));
}

}  // namespace
}  // namespace lockstep::checkpoint
