#include "lockstep/data/transforms/random_affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

TEST(RandomAffine, DrawsFromItsRanges) {
  const RandomAffine transform({-10, 30}, {.translate = {0.1, 0.25}, .scale = {0.5, 2}, .shear = 5, .shear_y = {1, 2}});
  double lowest = 30, highest = -10;
  for (std::uint64_t index = 0; index < 500; ++index) {
    base::RandomStream random(1, 2, index);
    const AffineOptions chosen = transform.choose({40, 100}, random);
    EXPECT_THAT(chosen.center, ElementsAre(50, 20));
    EXPECT_TRUE(chosen.angle >= -10 && chosen.angle <= 30) << chosen.angle;
    EXPECT_LE(std::abs(chosen.translate[0]), 10);
    EXPECT_LE(std::abs(chosen.translate[1]), 10);
    EXPECT_EQ(chosen.translate[0], std::trunc(chosen.translate[0])) << "whole pixels";
    EXPECT_TRUE(chosen.scale >= 0.5 && chosen.scale <= 2) << chosen.scale;
    EXPECT_LE(std::abs(chosen.shear[0]), 5);
    EXPECT_TRUE(chosen.shear[1] >= 1 && chosen.shear[1] <= 2) << chosen.shear[1];
    lowest = std::min(lowest, chosen.angle);
    highest = std::max(highest, chosen.angle);
  }
  EXPECT_LT(lowest, -9);
  EXPECT_GT(highest, 29);
}

TEST(RandomAffine, WarpsByWhatItChooses) {
  const Image image = picture(16, 20);
  const RandomAffine transform(25, {.scale = {0.8, 1.2},
                                    .center = std::array{3.0, 4.0},
                                    .warp = {.interpolation = Interpolation::bicubic, .fill = {1, 2, 3}}});
  for (std::uint64_t index = 0; index < 10; ++index) {
    base::RandomStream random(1, 2, index), same = random;
    Picture one = Picture::borrowed(image.view());
    transform.apply(one, random);
    const AffineOptions chosen = transform.choose({16, 20}, same);
    EXPECT_THAT(chosen.center, ElementsAre(3, 4));
    EXPECT_TRUE(same_pixels(one, warp(image.view(), {16, 20}, affine_matrix(chosen),
                                      {.interpolation = Interpolation::bicubic, .fill = {1, 2, 3}})));
  }
}

TEST(RandomAffine, OfNoRangeChangesNothing) {
  const Image image = picture(16, 20);
  for (const auto how : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
    base::RandomStream random(1, 2, 3);
    Picture one = Picture::borrowed(image.view());
    RandomAffine(0, {.warp = {.interpolation = how}}).apply(one, random);
    EXPECT_TRUE(same_pixels(one, image));
  }
}

TEST(RandomAffine, RefusesWhatItCannotDraw) {
  EXPECT_EQ(usage_error([] { RandomAffine(-1); }),
            "RandomAffine: degrees from 1.000000 to -1.000000, low <= high expected");
  EXPECT_EQ(usage_error([] {
              RandomAffine(1, {.translate = {0, 1.5}});
            }),
            "RandomAffine: translate by 1.500000 of the picture, 0 to 1 expected");
  EXPECT_EQ(usage_error([] {
              RandomAffine(1, {.scale = {0, 1}});
            }),
            "RandomAffine: scale from 0.000000, more than 0 expected");
  usage_error([] { RandomAffine(1, {.shear = {3, 2}}); });
}

}  // namespace
}  // namespace lockstep::data
