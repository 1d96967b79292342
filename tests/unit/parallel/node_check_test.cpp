// The hash by which nodes compare their states: of what counts alone, whoever hashes which part of it.

#include "lockstep/parallel/node_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/single/single_group.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kComparedFrozen = 20'001;  // elements: two pieces, and padding behind them

// With trained parameters in four blocks.
state::Layout compared_layout() {
  const auto tensor = [](const std::string& name, std::int64_t size) {
    return state::TensorSpec{.name = name, .sizes = {size}, .strides = {1}};
  };
  std::vector<state::TensorSpec> trained{tensor("w", 50'001), tensor("b", 5)};
  return state::Layout(trained, {}, {.optimizer_arrays = 1, .average = true}, {tensor("f", kComparedFrozen)});
}

std::uint64_t no_restart(state::SharedState&) { return 0; }

// The same numbers in each buffer, but for `padding`.
void fill_compared(const state::SharedState& shared, int buffer, float padding) {
  const state::Layout& layout = shared.layout();
  shared.set_frozen_area(buffer, buffer);
  float first = 0;
  for (const std::size_t offset : {layout.weights(buffer), layout.optimizer_array(buffer, 0), layout.average(buffer)}) {
    float* const array = shared.write_as<float>(offset);
    std::fill_n(array, layout.elements(), padding);
    for (const state::PlacedParameter& place : layout.parameters())
      std::iota(array + place.offset, array + place.offset + place.elements, first);
    ++first;
  }
  float* const frozen = shared.write_as<float>(layout.frozen_area(buffer));
  std::fill_n(frozen, layout.frozen_bytes() / sizeof(float), padding);
  std::iota(frozen, frozen + kComparedFrozen, first);
}

std::uint64_t whole_hash(const state::SharedState& shared, int buffer, int ranks) {
  std::uint64_t hash = 0;
  for (int rank = 0; rank < ranks; ++rank) hash ^= part_of_hash(shared, buffer, rank, ranks);
  return hash;
}

TEST(NodeCheck, TheHashIsTheSameForAnyNumberOfRanksInAnyBuffer) {
  comm::SingleGroup group;
  const state::SharedState shared(group.node(), compared_layout(), no_restart);
  fill_compared(shared, 0, 0);
  fill_compared(shared, 1, 7);
  const std::uint64_t hash = whole_hash(shared, 0, 1);
  EXPECT_NE(hash, 0u);
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (const int buffer : {0, 1}) EXPECT_EQ(whole_hash(shared, buffer, ranks), hash) << ranks << " ranks, " << buffer;
}

TEST(NodeCheck, EachBitCountsAndIsNamed) {
  comm::SingleGroup group;
  const state::SharedState shared(group.node(), compared_layout(), no_restart);
  for (const int buffer : {0, 1}) fill_compared(shared, buffer, 0);
  const std::uint64_t hash = whole_hash(shared, 0, 3);
  const std::vector<NamedHash> named = hashes_by_parameter(shared, 0);
  const state::Layout& layout = shared.layout();
  const std::size_t w = (layout.parameters()[0].offset + 50'000) * sizeof(float);
  const std::size_t b = layout.parameters()[1].offset * sizeof(float);
  const std::vector<std::pair<std::size_t, std::string>> cells{
      {layout.weights(1) + w, "values of parameter 'w'"},
      {layout.weights(1) + b, "values of parameter 'b'"},
      {layout.frozen_area(1) + std::size_t(kComparedFrozen - 1) * sizeof(float), "values of parameter 'f'"},
      {layout.optimizer_array(1, 0) + b, "optimizer state of parameter 'b'"},
      {layout.average(1) + w, "average of parameter 'w'"},
  };
  for (const auto& [offset, name] : cells) {
    *shared.write_as<std::uint32_t>(offset) ^= 1;
    EXPECT_NE(whole_hash(shared, 1, 3), hash) << name;
    const std::vector<NamedHash> now = hashes_by_parameter(shared, 1);
    ASSERT_EQ(now.size(), named.size());
    std::vector<std::string> differ;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].hash != named[i].hash) differ.push_back(now[i].name);
    EXPECT_EQ(differ, std::vector<std::string>{name});
    *shared.write_as<std::uint32_t>(offset) ^= 1;
  }
  EXPECT_EQ(whole_hash(shared, 1, 3), hash);
}

TEST(NodeCheck, WhereABitLiesCounts) {
  comm::SingleGroup group;
  const state::SharedState shared(group.node(), compared_layout(), no_restart);
  fill_compared(shared, 0, 0);
  const std::uint64_t hash = whole_hash(shared, 0, 2);
  const state::Layout& layout = shared.layout();
  float* const optimizers = shared.write_as<float>(layout.optimizer_array(0, 0));
  std::swap_ranges(optimizers, optimizers + layout.elements(), shared.write_as<float>(layout.average(0)));
  EXPECT_NE(whole_hash(shared, 0, 2), hash);
}

// Of two nodes, each of which has a share of the optimizer's state and all of the rest, the average among it.
TEST(NodeCheck, TheHashIsOfWhatAllNodesHaveWhereTheyShareOutTheOptimizersState) {
  std::optional<std::uint64_t> first;
  for (const int share : {0, 1})
    for (const bool copied : {false, true}) {
      comm::SingleGroup group;
      const state::SharedState shared(group.node(), compared_layout().with_share(share, 2, copied), no_restart);
      const state::Layout& layout = shared.layout();
      shared.set_frozen_area(0, 0);
      std::fill_n(shared.write_as<float>(layout.optimizer_area(0)), layout.optimizer_bytes() / sizeof(float),
                  float(2 * share + copied));
      for (const std::size_t offset : {layout.weights(0), layout.average(0)}) {
        float* const array = shared.write_as<float>(offset);
        std::iota(array, array + layout.elements(), 1.0f);
      }
      const std::uint64_t hash = whole_hash(shared, 0, 3);
      EXPECT_EQ(first.value_or(hash), hash) << "share " << share << (copied ? ", and a copy" : "");
      first = hash;
      EXPECT_EQ(hashes_by_parameter(shared, 0).size(), 5u) << "values of three, averages of two";
      const std::size_t last = layout.parameters()[0].offset + 50'000;
      *shared.write_as<std::uint32_t>(layout.average(0) + last * sizeof(float)) ^= 1;
      EXPECT_NE(whole_hash(shared, 0, 3), hash);
    }
}

}  // namespace
}  // namespace lockstep::parallel
