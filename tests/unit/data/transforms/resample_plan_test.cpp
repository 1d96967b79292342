#include "lockstep/data/transforms/resample_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/data/transforms/pixel_kernels.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

constexpr std::int32_t kOne = 1 << kWeightBits;

std::vector<std::int32_t> weights(const ResamplePlan& plan, int i) {
  return {plan.weights_of(i), plan.weights_of(i) + plan.ranges[std::size_t(i)].taps};
}

TEST(ResamplePlan, HalvingAveragesUnderATriangle) {
  const ResamplePlan plan = plan_resample({4, 0, 4, 2}, {0, 2}, Interpolation::bilinear);
  ASSERT_EQ(plan.ranges.size(), 2u);
  EXPECT_EQ(plan.ranges[0].first, 0);
  // Distances 0.25, 0.25, 0.75 in units of the widened filter: 3/7, 3/7, 1/7.
  EXPECT_THAT(weights(plan, 0), ElementsAre(1797559, 1797559, 599186));
  EXPECT_EQ(plan.ranges[1].first, 1);
  EXPECT_THAT(weights(plan, 1), ElementsAre(599186, 1797559, 1797559));
}

TEST(ResamplePlan, EnlargingInterpolatesBetweenNeighbours) {
  const ResamplePlan plan = plan_resample({2, 0, 2, 4}, {0, 4}, Interpolation::bilinear);
  EXPECT_THAT(weights(plan, 0), ElementsAre(kOne));
  EXPECT_THAT(weights(plan, 1), ElementsAre(kOne / 4 * 3, kOne / 4));
  EXPECT_THAT(weights(plan, 2), ElementsAre(kOne / 4, kOne / 4 * 3));
  EXPECT_THAT(weights(plan, 3), ElementsAre(kOne));
}

TEST(ResamplePlan, CubicWeightsGoBelowZero) {
  const ResamplePlan plan = plan_resample({8, 0, 8, 16}, {0, 16}, Interpolation::bicubic);
  // Distances 1.75, 0.75, 0.25, 1.25: -3/128, 29/128, 111/128, -9/128.
  EXPECT_THAT(weights(plan, 8), ElementsAre(-3 * kOne / 128, 29 * (kOne / 128), 111 * (kOne / 128), -9 * kOne / 128));
}

// Each has the neighbours of its radius: the mean of two, a window of sinc that is 0 at whole distances, three lobes.
TEST(ResamplePlan, FiltersOfResizingAlone) {
  const ResamplePlan halved = plan_resample({4, 0, 4, 2}, {0, 2}, Interpolation::box);
  for (const int i : {0, 1}) {
    EXPECT_EQ(halved.ranges[std::size_t(i)].first, 2 * i);
    EXPECT_THAT(weights(halved, i), ElementsAre(kOne / 2, kOne / 2));
  }
  EXPECT_THAT(weights(plan_resample({2, 0, 2, 4}, {0, 4}, Interpolation::box), 1), ElementsAre(kOne));
  const ResamplePlan shifted = plan_resample({8, 0.5F, 7.5F, 7}, {0, 7}, Interpolation::hamming);
  EXPECT_THAT(weights(shifted, 3), ElementsAre(kOne / 2, kOne / 2)) << "halfway between two";
  const ResamplePlan wide = plan_resample({16, 0.5F, 15.5F, 15}, {0, 15}, Interpolation::lanczos);
  const std::vector<std::int32_t> lobes = weights(wide, 7);
  ASSERT_EQ(lobes.size(), 6u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lobes[std::size_t(i)], lobes[std::size_t(5 - i)]);
  EXPECT_GT(lobes[0], 0);
  EXPECT_LT(lobes[1], 0);
  EXPECT_GT(lobes[2], kOne / 2);
}

TEST(ResamplePlan, StaysInsideAndSumsToOne) {
  for (const auto how : {Interpolation::bilinear, Interpolation::bicubic, Interpolation::box, Interpolation::hamming,
                         Interpolation::lanczos}) {
    for (const int from : {1, 2, 7, 100}) {
      for (const int to : {1, 3, 16, 250}) {
        const ResamplePlan plan = plan_resample({from, 0, float(from), to}, {0, to}, how);
        for (int i = 0; i < to; ++i) {
          const auto [first, taps] = plan.ranges[std::size_t(i)];
          EXPECT_GE(first, 0);
          EXPECT_LE(first + taps, from);
          EXPECT_LE(taps, plan.max_taps);
          const std::vector<std::int32_t> all = weights(plan, i);
          EXPECT_NEAR(std::accumulate(all.begin(), all.end(), 0), kOne, taps);
        }
      }
    }
  }
}

TEST(ResamplePlan, ColumnsComeFirstWhereTheySaveMore) {
  EXPECT_FALSE(columns_first({20, 20}, {11, 15})) << "9 rows less, 5 columns less";
  EXPECT_TRUE(columns_first({20, 20}, {9, 15})) << "11 rows less, 5 columns less";
  EXPECT_FALSE(columns_first({20, 20}, {10, 15})) << "10 rows less, 5 columns less";
  EXPECT_TRUE(columns_first({20, 20}, {19, 40}));
  EXPECT_FALSE(columns_first({20, 20}, {20, 40}));
  EXPECT_FALSE(columns_first({20, 20}, {40, 10}));
}

TEST(PlanNearest, TakesThePixelAtTheCentre) {
  EXPECT_THAT(plan_nearest({4, 0, 4, 2}, {0, 2}), ElementsAre(1, 3));
  EXPECT_THAT(plan_nearest({3, 0, 3, 5}, {0, 5}), ElementsAre(0, 0, 1, 2, 2));
  EXPECT_THAT(plan_nearest({10, 2.5f, 7.5f, 5}, {0, 5}), ElementsAre(3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace lockstep::data
