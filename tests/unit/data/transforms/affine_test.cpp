#include "lockstep/data/transforms/affine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

constexpr WarpOptions kBilinear = {Interpolation::bilinear, {9, 9, 9}};
constexpr WarpOptions kNearest = {Interpolation::nearest, {9, 9, 9}};

TEST(Warp, IdentityChangesNothing) {
  const Image image = picture(9, 7);
  for (const WarpOptions& options : {kNearest, kBilinear}) {
    EXPECT_TRUE(same_pixels(warp(image.view(), image.size(), {1, 0, 0, 0, 1, 0}, options), image));
  }
}

TEST(Warp, ShiftsAndFills) {
  const Image image = ramp(2, 3);
  EXPECT_THAT(pixels_of(warp(image.view(), {2, 3}, {1, 0, 1, 0, 1, 0}, kNearest)), ElementsAre(2, 3, 9, 5, 6, 9));
  EXPECT_THAT(pixels_of(warp(image.view(), {2, 3}, {1, 0, 0, 0, 1, -1}, kNearest)), ElementsAre(9, 9, 9, 1, 2, 3));
  EXPECT_THAT(pixels_of(warp(image.view(), {1, 2}, {1, 0, 0.5, 0, 1, 0.5}, kBilinear)), ElementsAre(3, 4));
}

TEST(Warp, LargePicturesUseTheSameRule) {
  const Image image = ramp(1, 3);
  const Image out = warp(image.view(), {2, 40000}, {1, 1e-9, 0, 1e-9, 1, 0}, kNearest);
  EXPECT_EQ(out.row(0)[0], 1);
  EXPECT_EQ(out.row(0)[2], 3);
  EXPECT_EQ(out.row(0)[3], 9);
  EXPECT_EQ(out.row(0)[39999], 9);
  EXPECT_EQ(out.row(1)[0], 9);
}

TEST(Warp, RefusesBicubic) {
  const Image image = ramp(1, 3);
  EXPECT_EQ(usage_error([&] {
              warp(image.view(), {1, 3}, {1, 0, 0, 0, 1, 0}, {Interpolation::bicubic});
            }),
            "warp: bicubic interpolation, nearest or bilinear expected");
}

TEST(AffineMatrix, UndoesShearAndShift) {
  const AffineMatrix shift = affine_matrix({.center = {5, 6}, .translate = {3, -2}});
  EXPECT_THAT(shift, ElementsAre(1, 0, -3, 0, 1, 2));
  const AffineMatrix shear = affine_matrix({.shear = {45, 0}});
  EXPECT_NEAR(shear[0], 1, 1e-15);
  EXPECT_NEAR(shear[1], 1, 1e-15);
  EXPECT_NEAR(shear[3], 0, 1e-15);
  EXPECT_NEAR(shear[4], 1, 1e-15);
}

TEST(Rotate, QuarterTurnsAreExact) {
  const Image image = ramp(2, 3);  // 1 2 3 / 4 5 6
  EXPECT_THAT(pixels_of(rotate(image.view(), 90, {}, true)), ElementsAre(3, 6, 2, 5, 1, 4));
  EXPECT_THAT(pixels_of(rotate(image.view(), 180)), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(pixels_of(rotate(image.view(), -90, {}, true)), ElementsAre(4, 1, 5, 2, 6, 3));
  EXPECT_TRUE(same_pixels(rotate(image.view(), 720), image));
}

TEST(Rotate, KeepsTheMiddleAndFillsTheCorners) {
  const Image image = picture(21, 21);
  for (const WarpOptions& options : {kNearest, kBilinear}) {
    const Image out = rotate(image.view(), 45, options);
    EXPECT_EQ(out.size(), image.size());
    EXPECT_EQ(out.row(0)[0], 9);
    for (int c = 0; c < 3; ++c) EXPECT_EQ(out.row(10)[30 + c], image.row(10)[30 + c]);
    EXPECT_EQ(rotate(image.view(), 45, options, true).size(), (Size{31, 31}));
  }
}

}  // namespace
}  // namespace lockstep::data
