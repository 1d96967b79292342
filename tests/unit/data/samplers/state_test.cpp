#include "lockstep/data/samplers/state.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

TEST(SamplerState, TravelsAsText) {
  const SamplerState state{.epoch = 3, .consumed = 1200, .order = 0x0123456789abcdef};
  EXPECT_EQ(to_json(state), R"({"consumed":1200,"epoch":3,"order":"0123456789abcdef"})");
  EXPECT_EQ(sampler_state(to_json(state)), state);
  const SamplerState extreme{.epoch = ~std::uint64_t(0), .consumed = INT64_MAX, .order = ~std::uint64_t(0)};
  EXPECT_EQ(sampler_state(to_json(extreme)), extreme);
}

TEST(SamplerState, RefusesOtherTexts) {
  for (const char* text : {
           "",
           "[]",
           "7",
           R"({"consumed":1200,"epoch":3})",
           R"({"consumed":1200,"epoch":3,"order":"0123456789abcdef","more":1})",
           R"({"consumed":-1,"epoch":3,"order":"0123456789abcdef"})",
           R"({"consumed":1.5,"epoch":3,"order":"0123456789abcdef"})",
           R"({"consumed":9223372036854775808,"epoch":3,"order":"0123456789abcdef"})",
           R"({"consumed":1200,"epoch":"3","order":"0123456789abcdef"})",
           R"({"consumed":1200,"epoch":3,"order":"0123456789abcde"})",
           R"({"consumed":1200,"epoch":3,"order":"0123456789abcdeg"})",
           R"({"consumed":1200,"epoch":3,"order":81985529216486895})",
           R"({"consumed":1200,"epoch":3,"order":"0123456789abcdef")",
       }) {
    EXPECT_EQ(testing::usage_error([&] { sampler_state(text); }),
              R"(no sampler state, {"consumed":N,"epoch":N,"order":"16 hex digits"} expected)")
        << text;
  }
}

TEST(OrderHash, ChangesWithEachEntryAndTheirOrder) {
  using Indices = std::vector<std::int64_t>;
  EXPECT_EQ(order_hash(Indices{1, 2, 3}), order_hash(Indices{1, 2, 3}));
  EXPECT_NE(order_hash(Indices{1, 2, 3}), order_hash(Indices{1, 3, 2}));
  EXPECT_NE(order_hash(Indices{1, 2, 3}), order_hash(Indices{1, 2}));
  EXPECT_NE(order_hash(Indices{0}), order_hash(Indices{}));
  EXPECT_EQ(order_hash(Indices{0, 1, 2}), 0xad2ec07e57dfba64u) << "pinned: a saved state stays valid";
}

}  // namespace
}  // namespace lockstep::data
