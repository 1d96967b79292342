#include "lockstep/state/layout.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/state/hash.h"

namespace lockstep::state {
namespace {

TensorSpec spec(const char* name, std::vector<std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return {name, c10::ScalarType::Float, std::move(sizes), std::move(strides)};
}

Layout example(LayoutOptions options = {.shards = 3, .slots = 3, .optimizer_arrays = 2, .state_buffers = 2}) {
  return {{spec("a", {5, 7}), spec("b", {0}), spec("c", {100'003})}, {spec("mean", {3})}, std::move(options)};
}

TensorSpec with(TensorSpec of, int group, c10::ScalarType gradients, bool bf16_copy) {
  of.group = group;
  of.gradients = gradients;
  of.bf16_copy = bf16_copy;
  return of;
}

// As autocast has them.
TensorSpec in_bf16(TensorSpec of) { return with(std::move(of), 0, c10::ScalarType::BFloat16, true); }

TEST(Layout, PlacesParametersOnCacheLines) {
  const Layout layout = example();
  for (const PlacedParameter& parameter : layout.parameters()) EXPECT_EQ(parameter.offset % 16, 0u);
  EXPECT_EQ(layout.parameters()[0].elements, 35u);
  EXPECT_EQ(layout.parameters()[1].elements, 0u);
  EXPECT_EQ(layout.elements() % 16, 0u);
  EXPECT_GE(layout.elements(), 100'038u);
}

// Numbers of elements and bytes that no 32 bits hold: nothing is cut off.
TEST(Layout, HasRoomForMoreThanTwoToThe31Elements) {
  const std::int64_t rows = std::int64_t(1) << 22;
  const Layout layout({spec("table", {rows, 1024}), spec("behind", {3})}, {},
                      {.shards = 2, .slots = 2, .optimizer_arrays = 2, .state_buffers = 2});
  const std::size_t table = std::size_t(rows) * 1024;
  EXPECT_EQ(layout.parameters()[0].elements, table);
  EXPECT_EQ(layout.parameters()[1].offset, table);
  EXPECT_EQ(layout.elements(), table + 16);
  EXPECT_GE(layout.weights(1), layout.weights(0) + 3 * table * sizeof(float));
  EXPECT_GE(layout.gradients(1), layout.gradients(0) + table * sizeof(float));
  EXPECT_GE(layout.total_bytes(), layout.gradients(1) + table * sizeof(float));
  EXPECT_EQ(layout.parts().back().range.end, table + 16);
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
    regions.emplace_back(layout.step_counts(buffer), 3 * sizeof(std::uint64_t));
  }
  for (int slot = 0; slot < 3; ++slot) {
    regions.emplace_back(layout.gradients(slot), array);
    regions.emplace_back(layout.uses(slot), 3);
    regions.emplace_back(layout.shard_record(slot), sizeof(ShardRecord));
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
  const Layout whole({spec("a", {5, 7})}, {spec("mean", {3})}, {.shards = 3}, {table, spec("bias", {9})});
  const Layout without({spec("a", {5, 7})}, {spec("mean", {3})}, {.shards = 3});
  EXPECT_EQ(whole.buffer_bytes(), without.buffer_bytes()) << "a step would copy them";
  EXPECT_GE(whole.frozen_area(0), whole.weights(1) + whole.buffer_bytes());
  EXPECT_EQ(whole.frozen_area(0) % 64, 0u);
  EXPECT_GE(whole.frozen()[1].offset, 2'000'002u);
  EXPECT_EQ(whole.frozen()[1].bytes, 36u);
  EXPECT_GE(whole.frozen_area(1), whole.frozen_area(0) + whole.frozen()[1].offset + 36);
  EXPECT_GE(whole.gradients(0), whole.frozen_area(1) + whole.frozen()[1].offset + 36);
  EXPECT_EQ(whole.gradients(0) % 4096, without.gradients(0) % 4096) << "arrays would begin at one place of a page";
  for (int buffer = 0; buffer < 2; ++buffer) {
    EXPECT_GE(whole.frozen_number(buffer), whole.step_record(buffer) + sizeof(StepRecord));
    EXPECT_LE(whole.frozen_number(buffer) + sizeof(std::uint64_t), whole.weights(buffer) + whole.buffer_bytes());
  }
  EXPECT_NE(whole.fingerprint(), without.fingerprint());
}

// Where everything lay when parts were told apart by bfloat16 alone: the norm adds up by block, so its bits depend on
// the places in the flat range.
TEST(Layout, PlacesOfFloat32AreTheseToTheByte) {
  const Layout layout = example();
  EXPECT_EQ(layout.parameters()[0].offset, 0u);
  EXPECT_EQ(layout.parameters()[1].offset, 48u);
  EXPECT_EQ(layout.parameters()[2].offset, 48u);
  EXPECT_EQ(layout.elements(), 100'064u);
  EXPECT_EQ(layout.blocks(), 7u);
  ASSERT_EQ(layout.parts().size(), 1u);
  EXPECT_EQ(layout.parts()[0].range, (Slice{0, 100'064}));
  constexpr std::size_t array = 98 * 4096 + 576;
  constexpr std::size_t buffer = 3 * array + 4 * 64;
  constexpr std::size_t slot = array + 4096 + 64;
  EXPECT_EQ(layout.weights(1), buffer);
  EXPECT_EQ(layout.optimizer_array(1, 1), buffer + 2 * array);
  EXPECT_EQ(layout.module_buffers(0), 3 * array);
  EXPECT_EQ(layout.step_record(0), 3 * array + 64);
  EXPECT_EQ(layout.step_counts(0), 3 * array + 128);
  EXPECT_EQ(layout.frozen_number(0), 3 * array + 192);
  EXPECT_EQ(layout.block_sums(), 2 * buffer);
  constexpr std::size_t first = 2 * buffer + 4096;
  EXPECT_EQ(layout.gradients(0), first);
  EXPECT_EQ(layout.gradient(1, 2), first + slot + 48 * 4);
  EXPECT_EQ(layout.uses(0), first + array);
  EXPECT_EQ(layout.shard_record(0), first + array + 4096);
  EXPECT_EQ(layout.total_bytes(), first + 3 * slot);
}

TEST(Layout, PlacesOfBFloat16AreTheseToTheByte) {
  const Layout layout({in_bf16(spec("w", {1000})), spec("n", {10}), in_bf16(spec("v", {33}))}, {},
                      {.shards = 2, .slots = 2, .optimizer_arrays = 1});
  EXPECT_EQ(layout.parameters()[0].offset, 0u);
  EXPECT_EQ(layout.parameters()[2].offset, 1024u);
  EXPECT_EQ(layout.parameters()[1].offset, 16'384u);
  EXPECT_EQ(layout.elements(), 16'400u);
  ASSERT_EQ(layout.parts().size(), 2u);
  EXPECT_EQ(layout.parts()[0].range, (Slice{0, 16'384}));
  EXPECT_EQ(layout.parts()[1].range, (Slice{16'384, 16'400}));
  EXPECT_EQ(layout.parts()[1].offset, 32'768u);
  constexpr std::size_t array = 17 * 4096 + 576;
  constexpr std::size_t copies = 8 * 4096 + 576;
  constexpr std::size_t buffer = 2 * array + copies + 3 * 64;
  constexpr std::size_t slot = 9 * 4096 + 576 + 4096 + 64;
  EXPECT_EQ(layout.bf16_copies(1), buffer + 2 * array);
  EXPECT_EQ(layout.bf16_copy(1, 2), buffer + 2 * array + 1024 * 2);
  EXPECT_EQ(layout.step_record(0), 2 * array + copies);
  EXPECT_EQ(layout.block_sums(), 2 * buffer);
  constexpr std::size_t first = 2 * buffer + 4096;
  EXPECT_EQ(layout.gradients(0), first);
  EXPECT_EQ(layout.gradient(0, 1), first + 32'768);
  EXPECT_EQ(layout.gradient(1, 2), first + slot + 1024 * 2);
  EXPECT_EQ(layout.total_bytes(), first + 2 * slot);
  const Layout alone({in_bf16(spec("w", {1000}))}, {}, {});
  EXPECT_EQ(alone.elements(), 1024u) << "padded for a part that is not there";
  EXPECT_EQ(alone.module_buffers(0) - alone.bf16_copies(0), 4096u + 576u);
}

// All slots but one, with sums and what other nodes tell, are more than all.
TEST(Layout, KnowsTheMostThatANodeMayNeed) {
  for (const bool narrow : {false, true}) {
    const auto of_slots = [&](int slots) {
      return Layout({narrow ? in_bf16(spec("w", {100'000})) : spec("w", {100'000})}, {},
                    {.shards = 4, .slots = slots, .optimizer_arrays = 1});
    };
    const std::size_t most = of_slots(1).most_bytes();
    for (int slots = 1; slots <= 4; ++slots) {
      EXPECT_EQ(of_slots(slots).most_bytes(), most) << slots;
      EXPECT_LE(of_slots(slots).total_bytes(), most) << slots;
    }
    EXPECT_EQ(of_slots(3).total_bytes(), most);
    EXPECT_GT(of_slots(3).total_bytes(), of_slots(4).total_bytes());
  }
  const Layout alone({spec("w", {10})}, {}, {});
  EXPECT_GE(alone.most_bytes(), alone.total_bytes());
}

TEST(Layout, CutsPartsByCopyGradientsAndGroup) {
  using c10::ScalarType;
  const Layout layout(
      {with(spec("a", {40}), 1, ScalarType::Float, false), with(spec("b", {50}), 0, ScalarType::Float, false),
       with(spec("c", {60}), 1, ScalarType::BFloat16, true), with(spec("d", {70}), 0, ScalarType::BFloat16, false),
       with(spec("e", {80}), 0, ScalarType::Float, true), with(spec("f", {0}), 2, ScalarType::Float, false),
       spec("g", {16'384})},
      {}, {});
  struct Expected {
    const char* names;
    std::size_t begin;
    int group;
    ScalarType gradients;
    bool bf16_copy;
    std::size_t offset, copies;
  };
  constexpr std::size_t block = Layout::kBlock;
  const Expected expected[] = {{"c", 0, 1, ScalarType::BFloat16, true, 0, 0},
                               {"e", block, 0, ScalarType::Float, true, 2 * block, block},
                               {"d", 2 * block, 0, ScalarType::BFloat16, false, 6 * block, 2 * block},
                               {"bg", 3 * block, 0, ScalarType::Float, false, 8 * block, 2 * block},
                               {"a", 5 * block, 1, ScalarType::Float, false, 16 * block, 2 * block}};
  ASSERT_EQ(layout.parts().size(), std::size(expected));
  std::size_t end = 0;
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const Part& part = layout.parts()[i];
    EXPECT_EQ(part.range.begin, end) << i;
    EXPECT_EQ(part.range.begin, expected[i].begin) << i;
    EXPECT_EQ(part.group, expected[i].group) << i;
    EXPECT_EQ(part.gradients, expected[i].gradients) << i;
    EXPECT_EQ(part.bf16_copy, expected[i].bf16_copy) << i;
    EXPECT_EQ(part.offset, expected[i].offset) << i;
    EXPECT_EQ(part.copies, expected[i].copies) << i;
    end = part.range.end;
  }
  EXPECT_EQ(end, layout.elements());
  for (std::size_t i = 0; i < layout.parameters().size(); ++i) {
    const PlacedParameter& parameter = layout.parameters()[i];
    const Part& part = layout.part_of(i);
    if (parameter.elements > 0) {
      EXPECT_NE(std::string_view(expected[std::size_t(&part - layout.parts().data())].names).find(parameter.spec.name),
                std::string_view::npos)
          << parameter.spec.name;
    }
    const std::size_t within = parameter.offset - part.range.begin;
    EXPECT_EQ(layout.gradient(0, i), layout.gradients(0) + part.offset + within * c10::elementSize(part.gradients));
    if (part.bf16_copy) {
      EXPECT_EQ(layout.bf16_copy(1, i), layout.bf16_copies(1) + (part.copies + within) * 2);
    }
  }
  EXPECT_EQ(layout.module_buffers(0) - layout.bf16_copies(0), 2 * block * 2 + 576);
  try {
    Layout({with(spec("h", {1}), 0, ScalarType::Half, false)}, {}, {});
    ADD_FAILURE() << "no kernel adds up such gradients";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("'h': gradients kept as Half"), std::string::npos) << error.what();
  }
}

TEST(Layout, SumsOfAParameterHaveAPairForEachBlockItLiesIn) {
  const Layout layout({spec("a", {20'000}), spec("b", {10}), spec("c", {0}), spec("d", {12'752}), spec("e", {100})}, {},
                      {.parameter_norms = true});
  EXPECT_EQ(layout.blocks_of(0), (Slice{0, 2}));
  EXPECT_EQ(layout.blocks_of(1), (Slice{1, 2}));
  EXPECT_EQ(layout.blocks_of(3), (Slice{1, 2})) << "ends on an edge";
  EXPECT_EQ(layout.blocks_of(4), (Slice{2, 3}));
  const std::size_t first = layout.block_sums() + 3 * sizeof(double);
  EXPECT_EQ(layout.parameter_sums(0), first);
  EXPECT_EQ(layout.parameter_sums(1), first + 2 * 16);
  EXPECT_EQ(layout.parameter_sums(3), first + 4 * 16);
  EXPECT_EQ(layout.parameter_sums(4), first + 5 * 16);
  EXPECT_EQ(layout.gradients(0), layout.block_sums() + 4096);
}

TEST(Layout, NamedBytesArePartOfEachBuffer) {
  const Layout without = example();
  const Layout layout = example(
      {.shards = 3, .slots = 3, .optimizer_arrays = 2, .bytes = {{"best", 8}, {"nothing", 0}, {"sampler", 100}}});
  for (int buffer = 0; buffer < 2; ++buffer) {
    EXPECT_EQ(layout.named_bytes(buffer, 0), layout.step_counts(buffer) + 64);
    EXPECT_EQ(layout.named_bytes(buffer, 1), layout.step_counts(buffer) + 128);
    EXPECT_EQ(layout.named_bytes(buffer, 2), layout.step_counts(buffer) + 128);
    EXPECT_EQ(layout.frozen_number(buffer), layout.named_bytes(buffer, 2) + 128);
  }
  EXPECT_EQ(layout.step_record(0), without.step_record(0));
  EXPECT_EQ(layout.content_bytes(), without.content_bytes() + 3 * 64);
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
  const auto other = [](int shards, int arrays, std::vector<NamedBytes> bytes) {
    return example({.shards = shards, .optimizer_arrays = arrays, .bytes = std::move(bytes)}).fingerprint();
  };
  EXPECT_NE(other(4, 2, {}), base);
  EXPECT_NE(other(3, 1, {}), base);
  EXPECT_NE(other(3, 2, {{"best", 8}}), base);
  EXPECT_NE(other(3, 2, {{"best", 8}}), other(3, 2, {{"best", 16}}));
  EXPECT_NE(other(3, 2, {{"best", 8}}), other(3, 2, {{"most", 8}}));
  // One state, however many buffers take turns in holding it, and whoever computes its gradients.
  EXPECT_EQ(other(3, 2, {}), base);
  EXPECT_EQ(example({.shards = 3, .optimizer_arrays = 2, .state_buffers = 3}).fingerprint(), base);
  TensorSpec a = spec("a", {5, 7});
  EXPECT_NE(fingerprint(spec("A", {5, 7})), fingerprint(a));
  EXPECT_NE(fingerprint(spec("a", {7, 5})), fingerprint(a));
  TensorSpec transposed = a;
  transposed.strides = {1, 5};
  EXPECT_NE(fingerprint(transposed), fingerprint(a));
  EXPECT_NE(fingerprint(with(a, 1, c10::ScalarType::Float, false)), fingerprint(a));
  EXPECT_NE(fingerprint(with(a, 0, c10::ScalarType::BFloat16, false)), fingerprint(a));
  EXPECT_NE(fingerprint(with(a, 0, c10::ScalarType::Float, true)), fingerprint(a));
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
