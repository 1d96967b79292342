#include "lockstep/base/random.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::base {
namespace {

// The known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<std::uint32_t> draws(RandomStream stream, int count) {
  std::vector<std::uint32_t> values;
  for (int i = 0; i < count; ++i) values.push_back(stream.next());
  return values;
}

TEST(RandomStream, IsTheBlocksOfItsCounterInOrder) {
  const std::uint64_t seed = 0x123456789abcdef0, index = 0xfedcba9876543210;
  const auto values = draws({seed, 7, index}, 8);
  for (std::uint32_t block = 0; block < 2; ++block) {
    const PhiloxCounter expected = philox({block, 0x76543210, 0xfedcba98, 7}, {0x9abcdef0, 0x12345678});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(values[block * 4 + i], expected[i]);
  }
}

TEST(RandomStream, SeedDomainAndIndexEachMakeAnotherStream) {
  const auto values = draws({1, 2, 3}, 8);
  EXPECT_EQ(draws({1, 2, 3}, 8), values);
  EXPECT_NE(draws({2, 2, 3}, 8), values);
  EXPECT_NE(draws({1, 3, 3}, 8), values);
  EXPECT_NE(draws({1, 2, 4}, 8), values);
  EXPECT_NE(draws({1, 2, 3 + (std::uint64_t(1) << 32)}, 8), values);
}

TEST(RandomStream, RangesAreMetAndFilledEvenly) {
  RandomStream stream(5, 0, 0);
  std::vector<int> counts(10);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    ++counts.at(stream.below(10));
    const float value = stream.between(-2, 3);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 3);
    sum += value;
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_NEAR(sum / 10000, 0.5, 0.06);
}

}  // namespace
}  // namespace lockstep::base
