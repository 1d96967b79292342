#include "lockstep/checkpoint/store/state_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "tests/support/usage_error.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::usage_error;
using ::testing::HasSubstr;

constexpr std::int64_t kEpoch = 0x616263;

// Buffers of 72 bytes: weight and moment of two floats each, a record, one count, a kept number, the area's number;
// behind two of them, frozen areas of one float.
StatePlan a_plan() {
  return {.folder = "/run/checkpoints",
          .retention = {.keep = 3, .best = 1, .smaller_is_better = true},
          .region = 2,
          .constant = {.seed = 7,
                       .shards = 4,
                       .threads = 1,
                       .optimizer = "0 1",
                       .optimizer_arrays = 1,
                       .versions = {{"lockstep", "0.1.0"}},
                       .extra = R"({"mine":[1,2]})"},
          .buffer_bytes = 72,
          .frozen_areas = 144,
          .frozen_bytes = 4,
          .frozen_number = 64,
          .loss = 16,
          .gradient_norm = 24,
          .samples = 32,
          .skipped = 40,
          .counts = 48,
          .parameters = {"w"},
          .kept = {{"loader", 56, 8}},
          .place = {{"epoch", "loader", 0}},
          .files = {{kModelName, {{"w", "F32", {2}, {1}, false, 0}, {"still", "F32", {1}, {1}, true, 0}}},
                    {kOptimizerName, {{"w/0", "F32", {2}, {1}, false, 8}}}}};
}

class ARegion {
 public:
  ARegion() {
    put<float>(72, 1.5f);
    put<float>(76, 2.5f);
    put<float>(80, -1.f);
    put<double>(72 + 16, 0.25);
    put<double>(72 + 24, 3.0);
    put<std::int64_t>(72 + 32, 32);
    put<std::uint64_t>(72 + 40, 1);
    put<std::uint64_t>(72 + 48, 11);
    put<std::int64_t>(72 + 56, kEpoch);
    put<std::uint64_t>(72 + 64, 1);
    put<float>(148, 9.f);
  }
  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(152);
};

float value_of(const TensorBytes& tensor, std::size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.data + index * sizeof value, sizeof value);
  return value;
}

TEST(StatePlan, ComesBackFromItsText) {
  StatePlan other = a_plan();
  other.region = 1;
  other.folder = "/elsewhere";
  const std::vector<StatePlan> plans{a_plan(), other};
  EXPECT_EQ(parse_plans(format_plans(plans)), plans);
  EXPECT_EQ(parse_plans(format_plans({})), std::vector<StatePlan>());
}

TEST(StatePlan, FindsWhatIsCommitted) {
  const ARegion region;
  const Contents contents = contents_at(a_plan(), region.bytes(), {.step = 12, .buffer = 1});
  SavedState state = a_plan().constant;
  state.step = 12;
  state.loss = 0.25;
  state.gradient_norm = 3;
  state.samples = 32;
  state.skipped = 1;
  state.updates = {{"w", 11}};
  state.kept = {{"loader", std::string(reinterpret_cast<const char*>(&kEpoch), sizeof kEpoch)}};
  state.place = {{"epoch", kEpoch}};
  EXPECT_EQ(contents.state, state);
  ASSERT_EQ(contents.files.size(), 2u);
  const std::vector<TensorBytes>& model = contents.files[0].tensors;
  EXPECT_EQ(contents.files[0].file, kModelName);
  EXPECT_EQ(value_of(model[0], 0), 1.5f);
  EXPECT_EQ(value_of(model[0], 1), 2.5f);
  EXPECT_EQ(value_of(model[1], 0), 9.f) << "of the frozen area that the buffer names";
  EXPECT_EQ(value_of(contents.files[1].tensors[0], 0), -1.f);
}

TEST(KeptNumbers, WhatIsNotThereIsNamed) {
  const auto fault = [](const KeptNumber& number) {
    return usage_error([&] { check_numbers({number}, {{"loader", 12}}); });
  };
  check_numbers({{"epoch", "loader", 4}}, {{"loader", 12}});
  EXPECT_EQ(fault({"epoch", "reader", 0}), "checkpoint: place 'epoch' is in the bytes 'reader', which are not kept");
  EXPECT_EQ(fault({"epoch", "loader", 5}),
            "checkpoint: place 'epoch' begins at byte 5 of 'loader', which has 12; eight are needed");
  EXPECT_THAT(fault({"epoch", "loader", ~std::uint64_t(0)}), HasSubstr("eight are needed"));
  EXPECT_THAT(usage_error([] { numbers_in({{"a", "1234567"}}, {{"n", "a", 0}}); }), HasSubstr("which has 7"));
  EXPECT_EQ(place_of("loader", {{"epoch", 8}}), (std::vector<KeptNumber>{{"epoch", "loader", 8}}));
}

TEST(StatePlan, NeverReadsBeyondTheRegion) {
  ARegion region;
  const auto fault = [&](const StatePlan& plan, std::span<const std::byte> memory, std::uint32_t buffer = 1) {
    try {
      contents_at(plan, memory, {.step = 12, .buffer = buffer});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string other = "checkpoint: the state in memory is another than the one that its plan tells of";
  EXPECT_EQ(fault(a_plan(), region.bytes()), "nothing");
  EXPECT_EQ(fault(a_plan(), region.bytes().first(151)), other);
  EXPECT_EQ(fault(a_plan(), region.bytes(), 3), other);
  StatePlan plan = a_plan();
  plan.files[0].tensors[0].offset = ~std::uint64_t(0);
  EXPECT_EQ(fault(plan, region.bytes()), other);
  plan = a_plan();
  plan.files[0].tensors[0].sizes = {std::int64_t(1) << 62, 8};
  EXPECT_EQ(fault(plan, region.bytes()), "checkpoint: a plan with a tensor of impossible sizes");
  plan = a_plan();
  plan.buffer_bytes = std::uint64_t(1) << 63;
  EXPECT_EQ(fault(plan, region.bytes()), other);
  region.put<std::uint64_t>(72 + 64, 77);
  EXPECT_EQ(fault(a_plan(), region.bytes()), other);
}

TEST(StatePlan, AnotherTextIsRefused) {
  for (const char* text : {"", "{", "{}", "[7]", "[{}]", R"([{"folder":7}])"})
    EXPECT_THAT(usage_error([&] { parse_plans(text); }), HasSubstr("checkpoint: no plan of a state: ")) << text;
}

}  // namespace
}  // namespace lockstep::checkpoint
