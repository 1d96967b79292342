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

TEST(Warp, RefusesAnInterpolationOfResizingAlone) {
  const Image image = ramp(2, 3);
  for (const auto how : {Interpolation::box, Interpolation::hamming, Interpolation::lanczos})
    EXPECT_EQ(usage_error([&] {
                warp(image.view(), {2, 3}, {1, 0, 0, 0, 1, 0}, {how});
              }),
              "pictures are turned and moved by nearest, bilinear or bicubic interpolation alone");
}

// By hand: the cubic with a = -1 at the middle of 10, 20, 40, 40 is 31.25, cut off to 31; at the edge 10 counts twice.
TEST(Warp, BicubicMixesSixteenNeighbours) {
  const Image image = row_of({10, 20, 40, 40}, 1);
  const WarpOptions bicubic = {Interpolation::bicubic, {9, 9, 9}};
  EXPECT_THAT(pixels_of(warp(image.view(), {1, 1}, {1, 0, 1.5, 0, 1, 0}, bicubic)), ElementsAre(31));
  EXPECT_THAT(pixels_of(warp(image.view(), {1, 4}, {1, 0, 0.5, 0, 1, 0}, bicubic)), ElementsAre(12, 31, 42, 9));
  EXPECT_TRUE(same_pixels(warp(image.view(), {1, 4}, {1, 0, 0, 0, 1, 0}, bicubic), image));
}

TEST(WarpPerspective, DividesByTheDepth) {
  const Image image = ramp(4, 4);
  const PerspectiveMatrix same = {1, 0, 0, 0, 1, 0, 0, 0};
  EXPECT_TRUE(same_pixels(warp_perspective(image.view(), same, kNearest), image));
  // x / (1 + x / 4): the centres 0.5 ... 3.5 come from 0.44, 1.09, 1.54, 1.87; y is divided alike.
  const PerspectiveMatrix far = {1, 0, 0, 0, 1, 0, 0.25, 0};
  const std::vector<int> pixels = pixels_of(warp_perspective(image.view(), far, kNearest));
  EXPECT_THAT((std::vector<int>(pixels.begin(), pixels.begin() + 4)), ElementsAre(1, 2, 2, 2));
  // Behind the eye nothing is seen.
  const PerspectiveMatrix behind = {1, 0, 0, 0, 1, 0, -1, 0};
  EXPECT_EQ(pixels_of(warp_perspective(image.view(), behind, kNearest))[2], 9);
}

TEST(AffineMatrix, UndoesShearShiftTurnAndScaling) {
  const AffineMatrix shift = affine_matrix({.center = {5, 6}, .translate = {3, -2}});
  EXPECT_THAT(shift, ElementsAre(1, 0, -3, 0, 1, 2));
  const AffineMatrix shear = affine_matrix({.shear = {45, 0}});
  EXPECT_NEAR(shear[0], 1, 1e-15);
  EXPECT_NEAR(shear[1], 1, 1e-15);
  EXPECT_NEAR(shear[3], 0, 1e-15);
  EXPECT_NEAR(shear[4], 1, 1e-15);
  const AffineMatrix turn = affine_matrix({.angle = 90, .scale = 2});  // clockwise: (1, 0) comes from (0, -1/2)
  EXPECT_NEAR(turn[0], 0, 1e-15);
  EXPECT_NEAR(turn[1], 0.5, 1e-15);
  EXPECT_NEAR(turn[3], -0.5, 1e-15);
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
