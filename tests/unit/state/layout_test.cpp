#include "lockstep/state/layout.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/state/hash.h"

namespace lockstep::state {
namespace {

TensorSpec spec(const char* name, std::vector<std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return {name, c10::ScalarType::Float, std::move(sizes), std::move(strides)};
}

Layout example(LayoutOptions options = {.shards = 3, .optimizer_arrays = 2, .state_buffers = 2}) {
  return {{spec("a", {5, 7}), spec("b", {0}), spec("c", {100'003})}, {spec("mean", {3})}, options};
}

TEST(Layout, PlacesParametersOnCacheLines) {
  const Layout layout = example();
  for (const PlacedParameter& parameter : layout.parameters()) EXPECT_EQ(parameter.offset % 16, 0u);
  EXPECT_EQ(layout.parameters()[0].elements, 35u);
  EXPECT_EQ(layout.parameters()[1].elements, 0u);
  EXPECT_EQ(layout.elements() % 16, 0u);
  EXPECT_GE(layout.elements(), 100'038u);
}

TEST(Layout, RegionsDoNotOverlap) {
  const Layout layout = example();
  std::vector<std::pair<std::size_t, std::size_t>> regions;
  const std::size_t array = layout.elements() * 4;
  for (int buffer = 0; buffer < 2; ++buffer) {
    regions.emplace_back(layout.weights(buffer), array);
    for (int i = 0; i < 2; ++i) regions.emplace_back(layout.optimizer_array(buffer, i), array);
    regions.emplace_back(layout.module_buffers(buffer), layout.module_buffer_bytes());
    regions.emplace_back(layout.step_record(buffer), sizeof(StepRecord));
  }
  for (int shard = 0; shard < 3; ++shard) {
    regions.emplace_back(layout.gradients(shard), array);
    regions.emplace_back(layout.shard_record(shard), sizeof(ShardRecord));
  }
  std::size_t end = 0;
  for (const auto& [offset, bytes] : regions) {
    EXPECT_GE(offset, end);
    EXPECT_EQ(offset % 64, 0u);
    end = offset + bytes;
  }
  EXPECT_LE(end, layout.total_bytes());
}

TEST(Layout, FrozenParametersHaveAreasOfTheirOwn) {
  TensorSpec table = spec("table", {1'000'001});
  table.dtype = c10::ScalarType::Half;
  const Layout with({spec("a", {5, 7})}, {spec("mean", {3})}, {.shards = 3}, {table, spec("bias", {9})});
  const Layout without({spec("a", {5, 7})}, {spec("mean", {3})}, {.shards = 3});
  EXPECT_EQ(with.buffer_bytes(), without.buffer_bytes()) << "a step would copy them";
  EXPECT_GE(with.frozen_area(0), with.block_sums() + with.blocks() * sizeof(double));
  EXPECT_EQ(with.frozen_area(0) % 64, 0u);
  EXPECT_GE(with.frozen()[1].offset, 2'000'002u);
  EXPECT_EQ(with.frozen()[1].bytes, 36u);
  EXPECT_GE(with.frozen_area(1), with.frozen_area(0) + with.frozen()[1].offset + 36);
  EXPECT_GE(with.total_bytes(), with.frozen_area(1) + with.frozen()[1].offset + 36);
  for (int buffer = 0; buffer < 2; ++buffer) {
    EXPECT_GE(with.frozen_number(buffer), with.step_record(buffer) + sizeof(StepRecord));
    EXPECT_LE(with.frozen_number(buffer) + sizeof(std::uint64_t), with.weights(buffer) + with.buffer_bytes());
  }
  EXPECT_NE(with.fingerprint(), without.fingerprint());
}

TEST(Layout, SlicesCoverTheRangeOnBlockEdges) {
  const Layout layout = example();
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::size_t end = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Slice slice = layout.slice(rank, ranks);
      EXPECT_EQ(slice.begin, end);
      EXPECT_TRUE(slice.end % Layout::kBlock == 0 || slice.end == layout.elements());
      end = slice.end;
    }
    EXPECT_EQ(end, layout.elements()) << ranks;
  }
}

TEST(Layout, AnEmptyModelHasAnEmptyRange) {
  const Layout layout({}, {}, {});
  EXPECT_EQ(layout.elements(), 0u);
  EXPECT_EQ(layout.slice(0, 2), (Slice{0, 0}));
}

TEST(Layout, TheFingerprintSeesEveryDifference) {
  const std::uint64_t base = example().fingerprint();
  EXPECT_EQ(example().fingerprint(), base);
  EXPECT_NE(example({.shards = 4, .optimizer_arrays = 2}).fingerprint(), base);
  EXPECT_NE(example({.shards = 3, .optimizer_arrays = 1}).fingerprint(), base);
  // One state, however many buffers take turns in holding it.
  EXPECT_EQ(example({.shards = 3, .optimizer_arrays = 2, .state_buffers = 3}).fingerprint(), base);
  TensorSpec a = spec("a", {5, 7});
  EXPECT_NE(fingerprint(spec("A", {5, 7})), fingerprint(a));
  EXPECT_NE(fingerprint(spec("a", {7, 5})), fingerprint(a));
  TensorSpec transposed = a;
  transposed.strides = {1, 5};
  EXPECT_NE(fingerprint(transposed), fingerprint(a));
  TensorSpec doubled = a;
  doubled.dtype = c10::ScalarType::Double;
  EXPECT_NE(fingerprint(doubled), fingerprint(a));
}

TEST(Hash, IsXxh3) {
  // The published XXH3 values of the empty input.
  EXPECT_EQ(hash64(""), 0x2d06800538d394c2ULL);
  EXPECT_EQ(hash128(""), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, OfTensorsIgnoresStridesButNothingElse) {
  const at::Tensor tensor = torch::arange(12, torch::kFloat).view({3, 4});
  const std::string base = tensors_hash({{"w", tensor}});
  EXPECT_EQ(tensors_hash({{"w", tensor.t().contiguous().t()}}), base);
  EXPECT_NE(tensors_hash({{"v", tensor}}), base);
  EXPECT_NE(tensors_hash({{"w", tensor.view({4, 3})}}), base);
  EXPECT_NE(tensors_hash({{"w", tensor.to(torch::kDouble)}}), base);
  at::Tensor changed = tensor.clone();
  changed[2][3] += 1e-6;
  EXPECT_NE(tensors_hash({{"w", changed}}), base);
}

}  // namespace
}  // namespace lockstep::state
