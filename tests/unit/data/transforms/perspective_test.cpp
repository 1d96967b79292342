#include "lockstep/data/transforms/perspective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

TEST(PerspectiveMatrix, TakesEachCornerFromTheOther) {
  const Corners from = corners_of({30, 40}), to = {{{3, 5}, {36, 1}, {30, 29}, {2, 24}}};
  const PerspectiveMatrix m = perspective_matrix(from, to);
  for (std::size_t i = 0; i < 4; ++i) {
    const double x = to[i][0], y = to[i][1], depth = m[6] * x + m[7] * y + 1;
    EXPECT_NEAR((m[0] * x + m[1] * y + m[2]) / depth, from[i][0], 1e-4);
    EXPECT_NEAR((m[3] * x + m[4] * y + m[5]) / depth, from[i][1], 1e-4);
  }
  for (const double number : m) EXPECT_EQ(number, double(float(number)));
  const PerspectiveMatrix shift = perspective_matrix(from, {{{2, 1}, {41, 1}, {41, 30}, {2, 30}}});
  const PerspectiveMatrix expected = {1, 0, -2, 0, 1, -1, 0, 0};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(shift[i], expected[i], 1e-6) << i;
}

TEST(PerspectiveMatrix, IsTheIdentityWhereThereIsNone) {
  const Corners line = {{{0, 0}, {1, 1}, {2, 2}, {0, 5}}};
  EXPECT_THAT(perspective_matrix(corners_of({3, 3}), line), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(perspective_matrix(corners_of({9, 1}), corners_of({9, 1})), ElementsAre(1, 0, 0, 0, 1, 0, 0, 0));
}

TEST(Distorted, KeepsEachCornerInItsRectangle) {
  for (std::uint64_t index = 0; index < 500; ++index) {
    base::RandomStream random(1, 2, index);
    const Corners corners = distorted({30, 41}, 0.5, random);  // 7 rows and 10 columns
    for (std::size_t i = 0; i < 4; ++i) {
      const bool right = i == 1 || i == 2, low = i >= 2;
      EXPECT_GE(corners[i][0], right ? 30 : 0);
      EXPECT_LE(corners[i][0], right ? 40 : 10);
      EXPECT_GE(corners[i][1], low ? 22 : 0);
      EXPECT_LE(corners[i][1], low ? 29 : 7);
    }
  }
  base::RandomStream random(1, 2, 3);
  EXPECT_EQ(distorted({30, 41}, 0, random), corners_of({30, 41}));
}

TEST(RandomPerspective, WarpsAsOftenAsAsked) {
  const Image image = picture(16, 20);
  int changed = 0;
  for (std::uint64_t index = 0; index < 1000; ++index) {
    base::RandomStream random(1, 2, index);
    Picture one = Picture::borrowed(image.view());
    RandomPerspective({.p = 0.3}).apply(one, random);
    changed += !same_pixels(one, image);
  }
  EXPECT_NEAR(changed, 300, 5 * 15);
  base::RandomStream random(1, 2, 3), same = random;
  Picture one = Picture::borrowed(image.view());
  RandomPerspective({.distortion_scale = 0.8, .p = 1, .warp = {.fill = {7, 8, 9}}}).apply(one, random);
  ASSERT_TRUE(happens(1, same));
  const PerspectiveMatrix matrix = perspective_matrix(corners_of({16, 20}), distorted({16, 20}, 0.8, same));
  EXPECT_TRUE(same_pixels(one, warp_perspective(image.view(), matrix, {.fill = {7, 8, 9}})));
}

TEST(RandomPerspective, LeavesALineAlone) {
  base::RandomStream random(1, 2, 3);
  const Image image = picture(1, 20);
  Picture one = Picture::borrowed(image.view());
  RandomPerspective({.distortion_scale = 1, .p = 1}).apply(one, random);
  EXPECT_TRUE(same_pixels(one, image));
}

TEST(RandomPerspective, RefusesWhatIsOutOfRange) {
  EXPECT_EQ(usage_error([] { RandomPerspective({.distortion_scale = 1.5}); }),
            "RandomPerspective: distortion_scale 1.500000, 0 to 1 expected");
  EXPECT_EQ(usage_error([] { RandomPerspective({.p = 2}); }), "RandomPerspective: p 2.000000, 0 to 1 expected");
}

}  // namespace
}  // namespace lockstep::data
