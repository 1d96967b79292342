#include "lockstep/parallel/summation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "lockstep/base/subtrees.h"

namespace lockstep::parallel {
namespace {

using Bytes = std::vector<std::byte>;
using ShardGradients = std::vector<std::vector<float>>;  // by shard

constexpr Compression kCompressions[] = {Compression::none, Compression::fp16, Compression::bf16};

// More than are added up at a time, and no multiple of what a vector has.
ShardGradients some_gradients(int shards, std::size_t elements = 2500) {
  std::mt19937 random(7);
  std::normal_distribution<float> numbers;
  ShardGradients gradients(static_cast<std::size_t>(shards), std::vector<float>(elements));
  for (auto& shard : gradients)
    for (float& number : shard) number = numbers(random);
  return gradients;
}

Operand slot(const ShardGradients& gradients, int shard) {
  return {{shard, shard + 1}, gradients[std::size_t(shard)].data(), c10::ScalarType::Float};
}

// Of all shards, where a node has made the sums of its runs of them; sums of float32 are those themselves.
std::vector<float> total(const ShardGradients& gradients, Compression compression,
                         const std::vector<ShardSpan>& nodes) {
  const int shards = int(gradients.size());
  const std::size_t elements = gradients[0].size();
  const Summation summation(compression, shards);
  std::vector<Bytes> travelled;
  std::vector<Operand> operands;
  for (const ShardSpan& held : nodes)
    for (const ShardSpan& span : base::whole_subtrees(shards, held)) {
      const c10::ScalarType type = sum_type(c10::ScalarType::Float, span.count(), compression);
      std::vector<Operand> slots;
      for (int shard = span.first; shard < span.last; ++shard) slots.push_back(slot(gradients, shard));
      travelled.emplace_back(elements * c10::elementSize(type));
      summation.add(span, slots, elements, travelled.back().data());
      operands.push_back({span, travelled.back().data(), type});
    }
  std::vector<float> sums(elements);
  if (!summation.rounds()) {
    summation.add({0, shards}, operands, elements, sums.data());
    return sums;
  }
  std::vector<std::uint16_t> rounded(elements);
  summation.add({0, shards}, operands, elements, rounded.data());
  summation.widen(rounded.data(), elements, sums.data());
  return sums;
}

std::vector<float> total(const ShardGradients& gradients, Compression compression) {
  return total(gradients, compression, {{0, int(gradients.size())}});
}

TEST(Summation, HasTheSameBitsWhateverTravels) {
  for (const Compression compression : kCompressions)
    for (const int shards : {2, 3, 4, 9}) {
      const ShardGradients gradients = some_gradients(shards);
      const std::vector<float> one = total(gradients, compression);
      for (int cut = 1; cut < shards; ++cut)
        EXPECT_EQ(total(gradients, compression, {{0, cut}, {cut, shards}}), one) << int(compression) << ", " << cut;
      std::vector<ShardSpan> alone;
      for (int shard = 0; shard < shards; ++shard) alone.push_back({shard, shard + 1});
      EXPECT_EQ(total(gradients, compression, alone), one) << int(compression);
    }
}

// Who adds up a piece has the gradients of its own shards as they are kept.
TEST(Summation, HasTheSameBitsOfWhatDidNotTravel) {
  const ShardGradients gradients = some_gradients(4);
  for (const Compression compression : {Compression::fp16, Compression::bf16}) {
    const Summation summation(compression, 4);
    const c10::ScalarType type = sum_type(c10::ScalarType::Float, 2, compression);
    std::vector<std::uint16_t> theirs(2500), all(2500);
    summation.add({2, 4}, {slot(gradients, 2), slot(gradients, 3)}, 2500, theirs.data());
    summation.add({0, 4}, {slot(gradients, 0), slot(gradients, 1), {{2, 4}, theirs.data(), type}}, 2500, all.data());
    std::vector<float> sums(2500);
    summation.widen(all.data(), 2500, sums.data());
    EXPECT_EQ(sums, total(gradients, compression)) << int(compression);
  }
}

// 1 + 2^-8 is halfway to what bfloat16 has next, and goes to the even one, 1; the other two add up to that step.
TEST(Summation, RoundsEverySum) {
  const float small = std::ldexp(1.0F, -8);
  EXPECT_EQ(total({{1}, {small}, {small}, {small}}, Compression::none)[0], 1 + 3 * small);
  EXPECT_EQ(total({{1}, {small}, {small}, {small}}, Compression::bf16)[0], 1 + 2 * small);
  EXPECT_EQ(total({{small}, {small}, {1}, {small}}, Compression::bf16)[0], 1 + 2 * small) << "on the right, too";
  EXPECT_EQ(total({{1 + small}, {small}}, Compression::bf16)[0], 1) << "and the gradient of a shard";
}

TEST(Summation, IsNearTheSumOfFloat32) {
  for (const auto& [compression, error] :
       std::vector<std::pair<Compression, float>>{{Compression::bf16, 0.2F}, {Compression::fp16, 0.025F}}) {
    const ShardGradients gradients = some_gradients(9);
    const std::vector<float> exact = total(gradients, Compression::none), rounded = total(gradients, compression);
    float most = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(rounded[i] - exact[i]));
    EXPECT_LT(most, error) << int(compression);
    EXPECT_GT(most, error / 100) << int(compression);
  }
}

// In float16 the largest number is 65504. Numbers up to that add up to one, and larger ones may not, whatever the mean.
TEST(Summation, DividesByTheShardsWhereNumbersEnd) {
  EXPECT_EQ(total({{40000}, {40000}, {40000}}, Compression::fp16)[0], 120000);
  EXPECT_EQ(total({{65504}, {65504}}, Compression::fp16)[0], 131008);
  EXPECT_EQ(total({{1e5F}, {1e5F}}, Compression::fp16)[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(total({{2e5F}, {2e5F}, {-2e5F}, {-2e5F}}, Compression::fp16)[0]));
  EXPECT_EQ(total({{1e6F}, {1e6F}}, Compression::fp16)[0], std::numeric_limits<float>::infinity());
  EXPECT_NEAR(total({{1e30F}, {1e30F}}, Compression::bf16)[0] / 2e30F, 1, 0.01);
}

TEST(Summation, TakesGradientsOf16Bits) {
  // 1.5 and -3 in bfloat16
  const std::uint16_t kept[] = {std::uint16_t(std::bit_cast<std::uint32_t>(1.5F) >> 16),
                                std::uint16_t(std::bit_cast<std::uint32_t>(-3.0F) >> 16)};
  const std::vector<Operand> slots{{{0, 1}, &kept[0], c10::ScalarType::BFloat16},
                                   {{1, 2}, &kept[1], c10::ScalarType::BFloat16}};
  for (const Compression compression : {Compression::fp16, Compression::bf16}) {
    const Summation summation(compression, 2);
    std::uint16_t rounded = 0;
    float sum = 0;
    summation.add({0, 2}, slots, 1, &rounded);
    summation.widen(&rounded, 1, &sum);
    EXPECT_EQ(sum, -1.5F) << int(compression);
  }
  float sum = 0;
  Summation(Compression::none, 2).add({0, 2}, slots, 1, &sum);
  EXPECT_EQ(sum, -1.5F);
}

TEST(SumType, IsThatOfTheCompressionOrOfTheSlot) {
  using c10::ScalarType;
  EXPECT_EQ(sum_type(ScalarType::BFloat16, 1, Compression::none), ScalarType::BFloat16);
  EXPECT_EQ(sum_type(ScalarType::BFloat16, 2, Compression::none), ScalarType::Float);
  EXPECT_EQ(sum_type(ScalarType::Float, 1, Compression::bf16), ScalarType::BFloat16);
  EXPECT_EQ(sum_type(ScalarType::BFloat16, 1, Compression::fp16), ScalarType::Half);
}

}  // namespace
}  // namespace lockstep::parallel
