#include "lockstep/data/samplers/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;
using Indices = std::vector<std::int64_t>;

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(SequentialSampler(3).order(7), (Indices{0, 1, 2}));
  EXPECT_EQ(SequentialSampler(3).num_samples(), 3);
}

// What Python gives is compared by tests/parity/sampler_test.py; here the well-known list of seed 0.
TEST(RandomSampler, IsRandperm) {
  EXPECT_EQ(RandomSampler(10).order(0), (Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(RandomSampler(10, {.seed = 3}).order(4), RandomSampler(10, {.seed = 7}).order(0));
  EXPECT_NE(RandomSampler(100).order(0), RandomSampler(100).order(1));
  EXPECT_EQ(RandomSampler(0).order(0), Indices{});
}

TEST(RandomSampler, MoreSamplesBeginANewPermutation) {
  const RandomSampler sampler(10, {.num_samples = 25});
  const Indices order = sampler.order(0);
  ASSERT_EQ(order.size(), 25u);
  const Indices first(order.begin(), order.begin() + 10), second(order.begin() + 10, order.begin() + 20);
  EXPECT_EQ(first, RandomSampler(10).order(0));
  EXPECT_NE(first, second);
  EXPECT_EQ(sorted(first), sorted(second));
  EXPECT_EQ(RandomSampler(10, {.num_samples = 3}).order(0), (Indices{4, 1, 7}));
}

TEST(RandomSampler, WithReplacementDrawsFromAll) {
  const Indices order = RandomSampler(1000, {.replacement = true}).order(2);
  ASSERT_EQ(order.size(), 1000u);
  const Indices all = sorted(order);
  EXPECT_GE(all.front(), 0);
  EXPECT_LT(all.back(), 1000);
  Indices different = all;
  different.erase(std::unique(different.begin(), different.end()), different.end());
  EXPECT_NEAR(double(different.size()), 632, 5 * 10);  // 1000 (1 - 1/e)
  const Indices few = RandomSampler(3, {.replacement = true, .num_samples = 100}).order(0);
  for (const int index : {0, 1, 2}) EXPECT_GT(std::ranges::count(few, index), 0) << index;
}

TEST(RandomSampler, RefusesWhatCannotBe) {
  EXPECT_EQ(usage_error([] { RandomSampler(-1); }), "random sampler: a set cannot have -1 samples");
  EXPECT_EQ(usage_error([] { RandomSampler(5, {.num_samples = 0}); }),
            "random sampler: num_samples 0, at least 1 expected");
  EXPECT_EQ(usage_error([] { RandomSampler(0, {.num_samples = 2}); }),
            "random sampler: 2 samples wanted of a set that has none");
}

TEST(WeightedRandomSampler, DrawsByWeight) {
  const Indices order = WeightedRandomSampler({0, 1, 3}, {.num_samples = 8000, .seed = 5}).order(1);
  EXPECT_EQ(std::ranges::count(order, 0), 0);
  EXPECT_NEAR(double(std::ranges::count(order, 1)), 2000, 5 * std::sqrt(1500.0));
  EXPECT_EQ(order.size(), 8000u);
}

TEST(WeightedRandomSampler, WithoutReplacementGivesEachOnce) {
  const WeightedRandomSampler sampler({1, 0, 5, 2}, {.num_samples = 3, .replacement = false});
  EXPECT_EQ(sorted(sampler.order(0)), (Indices{0, 2, 3}));
  EXPECT_EQ(sampler.num_samples(), 3);
}

TEST(WeightedRandomSampler, RefusesWhatCannotBe) {
  EXPECT_EQ(usage_error([] {
              WeightedRandomSampler({1, -2}, {.num_samples = 1});
            }),
            "weighted sampler: weight -2.000000 of sample 1, a number of at least 0 expected");
  usage_error([] { WeightedRandomSampler({std::nan("")}, {.num_samples = 1}); });
  usage_error([] { WeightedRandomSampler({std::numeric_limits<double>::infinity()}, {.num_samples = 1}); });
  EXPECT_EQ(usage_error([] {
              WeightedRandomSampler({0, 0}, {.num_samples = 1});
            }),
            "weighted sampler: no weight is above 0");
  usage_error([] { WeightedRandomSampler({}, {.num_samples = 1}); });
  EXPECT_EQ(usage_error([] { WeightedRandomSampler({1}, {}); }),
            "weighted sampler: num_samples 0, at least 1 expected");
  EXPECT_EQ(usage_error([] {
              WeightedRandomSampler({1, 0, 1}, {.num_samples = 3, .replacement = false});
            }),
            "weighted sampler: 3 samples wanted without replacement, 2 have a weight above 0");
}

}  // namespace
}  // namespace lockstep::data
