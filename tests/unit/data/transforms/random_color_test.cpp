#include "lockstep/data/transforms/random_color.h"

#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using namespace testing;

void expect_change(const Transform& always, const Image& before, const Image& after) {
  base::RandomStream random(0, 0, 0);
  Picture picture = Picture::borrowed(before.view());
  always.apply(picture, random);
  EXPECT_TRUE(same_pixels(picture, after));
  EXPECT_FALSE(same_pixels(before, after));
}

TEST(RandomColor, IsTheOperationOfItsName) {
  const Image image = picture(20, 30);
  const ImageView view = image.view();
  expect_change(RandomInvert(1), image, invert(view));
  expect_change(RandomPosterize(2, 1), image, posterize(view, 2));
  expect_change(RandomSolarize(100, 1), image, solarize(view, 100));
  expect_change(RandomAdjustSharpness(2, 1), image, adjust_sharpness(view, 2));
  expect_change(RandomEqualize(1), image, equalize(view));
  const Image dull = posterize(view, 1);  // 0 and 128
  expect_change(RandomAutocontrast(1), dull, autocontrast(dull.view()));
}

TEST(RandomColor, GreyKeepsTheChannels) {
  const Image image = picture(20, 30);
  expect_change(RandomGrayscale(1), image, to_grey(image.view(), 3));
  const Image grey = ramp(3, 4);
  Picture one = Picture::borrowed(grey.view());
  base::RandomStream random(0, 0, 0);
  RandomGrayscale(1).apply(one, random);
  EXPECT_TRUE(same_pixels(one, grey));
}

TEST(RandomColor, HappensAsOftenAsSaid) {
  const Image grey = ramp(1, 1);
  int inverted = 0;
  for (std::uint64_t index = 0; index < 4000; ++index) {
    base::RandomStream random(1, 2, index);
    Picture one = Picture::borrowed(grey.view());
    RandomInvert(0.25).apply(one, random);
    inverted += pixels_of(one).front() == 254;
  }
  EXPECT_NEAR(inverted, 1000, 5 * 28);
}

TEST(RandomColor, RefusesWrongNumbersBeforeAnyPicture) {
  EXPECT_EQ(usage_error([] { RandomInvert(1.5); }), "RandomInvert: p 1.500000, 0 to 1 expected");
  EXPECT_EQ(usage_error([] { RandomPosterize(0); }), "RandomPosterize: 0 bits, 1 to 8 expected");
  EXPECT_EQ(usage_error([] { RandomPosterize(9); }), "RandomPosterize: 9 bits, 1 to 8 expected");
  EXPECT_EQ(usage_error([] { RandomAdjustSharpness(-1); }),
            "RandomAdjustSharpness: factor -1.000000, 0 or more expected");
}

}  // namespace
}  // namespace lockstep::data
