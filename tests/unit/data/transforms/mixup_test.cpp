#include "lockstep/data/transforms/mixup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>

#include "lockstep/data/transforms/bfloat16.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using testing::usage_error;

std::vector<double> betas(double alpha, int count) {
  std::vector<double> draws;
  for (int i = 0; i < count; ++i) {
    base::RandomStream random = batch_stream({.seed = 4, .batch = std::uint64_t(i)});
    draws.push_back(draw_beta(alpha, random));
  }
  return draws;
}

// The largest distance between the distribution of the draws and its formula.
template <class F>
double distance(std::vector<double> draws, F below) {
  std::ranges::sort(draws);
  double largest = 0;
  const double n = double(draws.size());
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double expected = below(draws[i]);
    largest = std::max({largest, expected - double(i) / n, double(i + 1) / n - expected});
  }
  return largest;
}

constexpr int kDraws = 20000;
const double kLimit = 2.69 / std::sqrt(kDraws);  // exceeded once in a million times

TEST(DrawBeta, HasTheDistribution) {
  EXPECT_LT(distance(betas(0.5, kDraws), [](double x) { return 2 / std::numbers::pi * std::asin(std::sqrt(x)); }),
            kLimit);
  EXPECT_LT(distance(betas(1, kDraws), [](double x) { return x; }), kLimit);
  EXPECT_LT(distance(betas(2, kDraws), [](double x) { return x * x * (3 - 2 * x); }), kLimit);
}

TEST(DrawBeta, HasItsMomentsWhereTheFormulaIsNone) {
  for (const double alpha : {0.01, 0.2, 0.8, 5.0, 300.0}) {
    double sum = 0, squares = 0;
    for (const double x : betas(alpha, kDraws)) {
      ASSERT_TRUE(x > 0 && x < 1);
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws / variance, 1, 5 * std::sqrt(2.0 / kDraws)) << alpha;
  }
}

TEST(DrawBeta, OfExtremeShapesIsANumber) {
  for (const double x : betas(1e-6, 100)) EXPECT_TRUE((x > 0 && x < 1e-30) || (x > 0.9999999 && x < 1)) << x;
  for (const double x : betas(1e12, 100)) EXPECT_NEAR(x, 0.5, 1e-4);
}

// Three samples of one number.
Slots slots(std::vector<float>& numbers) { return {{.data = numbers.data(), .size = {1, 1}, .channels = 1}, 3}; }

TEST(MixUpOf, EachSampleAndTheOneBefore) {
  std::vector<float> numbers = {1, 2, 4};
  mix_up(slots(numbers), 0.75);
  EXPECT_THAT(numbers, ElementsAre(0.75f + 1, 1.5f + 0.25f, 3 + 0.5f));
  mix_up(slots(numbers), 1);
  EXPECT_THAT(numbers, ElementsAre(1.75f, 1.75f, 3.5f)) << "nothing of the other";
  mix_up(slots(numbers), 0);
  EXPECT_THAT(numbers, ElementsAre(3.5f, 1.75f, 1.75f)) << "nothing else";
}

TEST(MixUpOf, NoSampleAndOne) {
  std::vector<float> numbers = {3};
  Slots one = slots(numbers);
  one.count = 1;
  mix_up(one, 0.25);
  EXPECT_THAT(numbers, ElementsAre(3));
  mix_up({}, 0.5);
  cut_mix({}, {});
}

TEST(MixUpOf, BfloatsIsRoundedAfterEachStep) {
  std::vector<std::uint16_t> numbers = {to_bfloat16(1.0078125f), to_bfloat16(3)};
  mix_up({{.data = numbers.data(), .size = {1, 1}, .channels = 1, .type = PixelType::bfloat16}, 2}, 0.3);
  const auto rounded = [](float x) { return from_bfloat16(to_bfloat16(x)); };
  EXPECT_EQ(from_bfloat16(numbers[0]), rounded(rounded(3 * 0.7f) + rounded(1.0078125f * 0.3f)));
  EXPECT_EQ(from_bfloat16(numbers[1]), rounded(rounded(1.0078125f * 0.7f) + rounded(3 * 0.3f)));
}

TEST(CutBox, IsTorchvisions) {
  const auto box = [](Size image, double lambda, int row, int column) {
    const CropBox b = cut_box(image, lambda, row, column);
    return std::vector<int>{b.top, b.left, b.size.height, b.size.width};
  };
  EXPECT_THAT(box({32, 48}, 0.75, 16, 24), ElementsAre(8, 12, 16, 24));
  EXPECT_THAT(box({32, 48}, 0.75, 0, 47), ElementsAre(0, 35, 8, 13)) << "cut off at the edges";
  EXPECT_THAT(box({32, 48}, 1, 5, 6), ElementsAre(5, 6, 0, 0));
  EXPECT_THAT(box({31, 31}, 0, 15, 15), ElementsAre(0, 0, 30, 30)) << "halves are cut off, too";
  EXPECT_EQ(share_outside({32, 48}, {8, 12, {16, 24}}), 0.75);
  EXPECT_EQ(share_outside({32, 48}, {5, 6, {0, 0}}), 1);
}

TEST(CutMixOf, CopiesTheBoxOfTheSampleBefore) {
  constexpr Size kSize = {4, 5};
  const CropBox box{1, 2, {2, 3}};
  for (const PixelLayout layout : {PixelLayout::planes, PixelLayout::channels_last}) {
    std::vector<float> numbers(3 * 2 * 20);
    std::iota(numbers.begin(), numbers.end(), 0);
    const std::vector<float> before = numbers;
    cut_mix({{.data = numbers.data(), .size = kSize, .channels = 2, .layout = layout}, 3}, box);
    for (int i = 0; i < 120; ++i) {
      const int number = i % 40, pixel = layout == PixelLayout::planes ? number % 20 : number / 2;
      const int y = pixel / 5, x = pixel % 5;
      const bool inside = y >= 1 && y < 3 && x >= 2;
      ASSERT_EQ(numbers[std::size_t(i)], before[std::size_t(inside ? (i + 80) % 120 : i)]) << i;
    }
  }
}

TEST(MixLabels, AreWeightsOfTwoClasses) {
  const std::vector<std::int64_t> labels = {2, 0, 0};
  std::vector<float> targets(9, 99);
  mix_labels(labels, 0.75, 3, targets.data());
  EXPECT_THAT(targets, ElementsAre(0.25f, 0, 0.75f, 0.75f, 0, 0.25f, 1, 0, 0));
}

TEST(BatchMixes, DrawAndApply) {
  const Size size{16, 16};
  std::vector<float> numbers(4 * 256), mixed, cut;
  std::iota(numbers.begin(), numbers.end(), 0);
  mixed = cut = numbers;
  const auto as_batch = [&](std::vector<float>& data) {
    return Slots{{.data = data.data(), .size = size, .channels = 1}, 4};
  };
  base::RandomStream random = batch_stream({.seed = 1}), same = random, third = random;
  const double lambda = draw_beta(0.2, random);
  EXPECT_EQ(MixUp(0.2).apply(as_batch(mixed), same), lambda);
  std::vector<float> expected = numbers;
  mix_up(as_batch(expected), lambda);
  EXPECT_EQ(mixed, expected);
  const int column = int(random.below(16)), row = int(random.below(16));
  const CropBox box = cut_box(size, lambda, row, column);
  EXPECT_EQ(CutMix(0.2).apply(as_batch(cut), third), share_outside(size, box));
  expected = numbers;
  cut_mix(as_batch(expected), box);
  EXPECT_EQ(cut, expected);
}

TEST(BatchMixes, TheChoiceIsEven) {
  const std::shared_ptr<const BatchMix> both = mixup_cutmix(1, 1);
  int cut = 0;
  for (std::uint64_t batch = 0; batch < 1000; ++batch) {
    std::vector<float> numbers(2 * 64, 1);
    std::fill_n(numbers.begin(), 64, 0.0f);
    base::RandomStream random = batch_stream({.seed = 2, .batch = batch});
    both->apply({{.data = numbers.data(), .size = {8, 8}, .channels = 1}, 2}, random);
    cut += std::ranges::all_of(numbers, [](float x) { return x == 0 || x == 1; });
  }
  EXPECT_NEAR(cut, 500, 5 * 15.8);
}

TEST(BatchMixes, AreThoseThatHaveAnAlpha) {
  EXPECT_EQ(mixup_cutmix(0, 0), nullptr);
  EXPECT_NE(dynamic_cast<const MixUp*>(mixup_cutmix(0.2, 0).get()), nullptr);
  EXPECT_NE(dynamic_cast<const CutMix*>(mixup_cutmix(0, 1).get()), nullptr);
  EXPECT_NE(dynamic_cast<const MixChoice*>(mixup_cutmix(0.2, 1).get()), nullptr);
  EXPECT_EQ(usage_error([] { mixup_cutmix(-1, 0); }), "MixUp: alpha -1.000000, a number above 0 expected");
  EXPECT_EQ(usage_error([] { CutMix{0}; }), "CutMix: alpha 0.000000, a number above 0 expected");
  usage_error([] { MixUp{std::numeric_limits<double>::infinity()}; });
  usage_error([] { MixUp{std::nan("")}; });
  EXPECT_EQ(usage_error([] { MixChoice{{}}; }), "MixChoice: nothing to choose from");
}

TEST(BatchStream, IsOfItsOwnForEachPartOfTheKey) {
  std::map<std::uint32_t, int> first;
  for (const BatchKey& key : {BatchKey{}, BatchKey{.seed = 1}, BatchKey{.epoch = 1}, BatchKey{.batch = 1},
                              BatchKey{.shard = 1}, BatchKey{.seed = 1ull << 32}, BatchKey{.epoch = 1ull << 32}}) {
    ++first[batch_stream(key).next()];
  }
  ++first[transform_stream({}, 0).next()];
  EXPECT_EQ(first.size(), 8u);
}

}  // namespace
}  // namespace lockstep::data
