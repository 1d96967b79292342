#include "lockstep/data/transforms/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/data/transforms/color.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

std::vector<int> applied(const Transform& transform, std::uint64_t index) {
  Picture one(picture(16, 20));
  base::RandomStream random = transform_stream({.seed = 3, .index = index}, 0);
  transform.apply(one, random);
  return pixels_of(one);
}

// How many different results among the first samples.
std::size_t variety(const Transform& transform, std::uint64_t samples) {
  std::set<std::vector<int>> results;
  for (std::uint64_t index = 0; index < samples; ++index) results.insert(applied(transform, index));
  return results.size();
}

TEST(ColorJitterTransform, AdjustsByFactorsFromItsRangeInAnyOrder) {
  EXPECT_EQ(applied(ColorJitter({}), 1), pixels_of(picture(16, 20)));
  EXPECT_GT(variety(ColorJitter({0.4, 0.4, 0.4, 0.1}), 50), 48u);
  const Image original = picture(16, 20);
  int darker = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const std::vector<int> pixels = applied(ColorJitter({.brightness = 0.25}), index);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const double sample = original.row(0)[i];
      ASSERT_GE(pixels[i], 0.75 * sample - 1);
      ASSERT_LE(pixels[i], 1.25 * sample);
    }
    darker += pixels < pixels_of(original);
  }
  EXPECT_NEAR(darker, 100, 5 * 7.1);
}

TEST(ColorJitterTransform, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(usage_error([] { ColorJitter({.contrast = -1}); }), "ColorJitter: -1.000000, at least 0 expected");
  EXPECT_EQ(usage_error([] { ColorJitter({.hue = 0.6}); }), "ColorJitter: hue 0.600000, at most 0.5 expected");
}

TEST(RandomRotationTransform, TurnsByItsAngle) {
  base::RandomStream random = transform_stream({.seed = 3, .index = 5}, 0);
  const double degrees = random.between(-30, 30);
  EXPECT_EQ(applied(RandomRotation(30), 5), pixels_of(rotate(picture(16, 20).view(), degrees)));
  EXPECT_EQ(applied(RandomRotation(0), 5), pixels_of(picture(16, 20)));
  EXPECT_EQ(usage_error([] { RandomRotation(-1); }), "RandomRotation: -1.000000 degrees, at least 0 expected");
}

TEST(Magnitudes, AreTheTablesOfTorchvision) {
  EXPECT_THAT(magnitudes(AugmentSpace::standard, AugmentOp::posterize, 10, {}),
              ElementsAre(8, 8, 7, 7, 6, 6, 5, 5, 4, 4));
  EXPECT_THAT(magnitudes(AugmentSpace::standard, AugmentOp::rotate, 4, {}), ElementsAre(0, 10, 20, 30));
  EXPECT_THAT(magnitudes(AugmentSpace::standard, AugmentOp::translate_x, 2, {1, 331}), ElementsAre(0, 150));
  EXPECT_THAT(magnitudes(AugmentSpace::standard, AugmentOp::translate_y, 2, {331, 1}), ElementsAre(0, 150));
  EXPECT_THAT(magnitudes(AugmentSpace::wide, AugmentOp::translate_y, 2, {331, 1}), ElementsAre(0, 32));
  EXPECT_THAT(magnitudes(AugmentSpace::wide, AugmentOp::solarize, 2, {}), ElementsAre(255, 0));
  EXPECT_TRUE(magnitudes(AugmentSpace::wide, AugmentOp::equalize, 2, {}).empty());
  EXPECT_TRUE(is_signed(AugmentOp::sharpness));
  EXPECT_FALSE(is_signed(AugmentOp::identity));
  EXPECT_FALSE(is_signed(AugmentOp::solarize));
}

TEST(Augmented, NamesTheOperationsAsTheyAre) {
  const Image image = picture(16, 20);
  const WarpOptions options;
  EXPECT_TRUE(same_pixels(augmented(image.view(), AugmentOp::identity, 1, options), image));
  EXPECT_TRUE(same_pixels(augmented(image.view(), AugmentOp::invert, 0, options), invert(image.view())));
  EXPECT_TRUE(same_pixels(augmented(image.view(), AugmentOp::posterize, 3.9, options), posterize(image.view(), 3)));
  EXPECT_TRUE(
      same_pixels(augmented(image.view(), AugmentOp::color, -0.3, options), adjust_saturation(image.view(), 0.7)));
  const Image moved = augmented(image.view(), AugmentOp::translate_x, 2.9, options);
  EXPECT_TRUE(same_pixels(copy_of(moved.view().part(0, 2, 16, 18)), copy_of(image.view().part(0, 0, 16, 18))));
}

TEST(AutoAugmentTransform, AppliesOneOfThePairs) {
  for (const auto policy : {AutoAugmentPolicy::imagenet, AutoAugmentPolicy::cifar10, AutoAugmentPolicy::svhn}) {
    EXPECT_EQ(policy_pairs(policy).size(), 25u);
    EXPECT_GT(variety(AutoAugment(policy), 200), 40u);
    for (std::uint64_t index = 0; index < 20; ++index) {
      const AutoAugment transform(policy);
      EXPECT_EQ(applied(transform, index), applied(transform, index));
    }
  }
  EXPECT_NE(applied(AutoAugment(AutoAugmentPolicy::imagenet), 4), applied(AutoAugment(AutoAugmentPolicy::cifar10), 4));
}

TEST(RandAugmentTransform, AppliesSoManyOperations) {
  EXPECT_EQ(applied(RandAugment({.num_ops = 0}), 7), pixels_of(picture(16, 20)));
  // 14 operations, 9 of them in two directions; identity and weak ones coincide.
  const std::size_t one = variety(RandAugment({.num_ops = 1}), 300);
  EXPECT_GE(one, 18u);
  EXPECT_LE(one, 23u);
  EXPECT_GT(variety(RandAugment(), 300), 100u);
  EXPECT_EQ(usage_error([] { RandAugment({.magnitude = 31}); }),
            "RandAugment: 2 operations of magnitude 31, at least 0 of 0 to 30 expected");
  EXPECT_EQ(usage_error([] { RandAugment({.num_magnitude_bins = 1}); }), "RandAugment: 1 bins, at least 2 expected");
}

TEST(TrivialAugmentTransform, AppliesOneOperationOfAnyMagnitude) {
  EXPECT_GT(variety(TrivialAugmentWide(), 400), 100u);
  EXPECT_EQ(usage_error([] { TrivialAugmentWide(0); }), "TrivialAugmentWide: 0 bins, at least 2 expected");
}

}  // namespace
}  // namespace lockstep::data
