#include "lockstep/data/transforms/color.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

// What Pillow makes of these is compared by tests/parity/augment_test.py; here the formulas.
TEST(AdjustBrightness, ScalesAndCutsOff) {
  const Image image = row_of({0, 1, 100, 101, 200, 255}, 3);
  EXPECT_THAT(pixels_of(adjust_brightness(image.view(), 0.5)), ElementsAre(0, 0, 50, 50, 100, 127));
  EXPECT_THAT(pixels_of(adjust_brightness(image.view(), 1.5)), ElementsAre(0, 1, 150, 151, 255, 255));
  EXPECT_TRUE(same_pixels(adjust_brightness(image.view(), 1), image));
}

TEST(AdjustContrast, IsAroundTheMeanOfTheGrey) {
  const Image image = row_of({0, 100, 200, 201}, 1);  // mean 125.25
  EXPECT_THAT(pixels_of(adjust_contrast(image.view(), 0)), ElementsAre(125, 125, 125, 125));
  EXPECT_THAT(pixels_of(adjust_contrast(image.view(), 0.5)), ElementsAre(62, 112, 162, 163));
  EXPECT_THAT(pixels_of(adjust_contrast(image.view(), 2)), ElementsAre(0, 75, 255, 255));
}

TEST(AdjustSaturation, IsAroundTheGreyOfThePixel) {
  const Image image = row_of({200, 100, 50, 7, 7, 7}, 3);  // grey 124
  EXPECT_THAT(pixels_of(adjust_saturation(image.view(), 0)), ElementsAre(124, 124, 124, 7, 7, 7));
  EXPECT_THAT(pixels_of(adjust_saturation(image.view(), 2)), ElementsAre(255, 76, 0, 7, 7, 7));
}

TEST(AdjustSharpness, SmoothsTheInsideAndKeepsTheEdge) {
  Image image(3, 3, 1);
  std::fill_n(image.row(0), 9, std::uint8_t(0));
  image.row(1)[1] = 130;
  EXPECT_THAT(pixels_of(adjust_sharpness(image.view(), 0)), ElementsAre(0, 0, 0, 0, 50, 0, 0, 0, 0));
  EXPECT_THAT(pixels_of(adjust_sharpness(image.view(), 2)), ElementsAre(0, 0, 0, 0, 210, 0, 0, 0, 0));
  for (const int side : {1, 2}) {
    const Image small = picture(side, 5);
    EXPECT_TRUE(same_pixels(adjust_sharpness(small.view(), 0), small));
  }
}

TEST(AdjustHue, TurnsTheColours) {
  const Image image = row_of({255, 0, 0, 9, 9, 9}, 3);
  EXPECT_THAT(pixels_of(adjust_hue(image.view(), 0)), ElementsAre(255, 0, 0, 9, 9, 9));
  EXPECT_THAT(pixels_of(adjust_hue(image.view(), 1.0 / 3)), ElementsAre(0, 255, 0, 9, 9, 9));
  const std::vector<int> half = pixels_of(adjust_hue(image.view(), 0.5));
  EXPECT_EQ(half[0], 0);
  EXPECT_EQ(std::max(half[1], half[2]), 255);
  const Image grey = picture(3, 3, 1);
  EXPECT_TRUE(same_pixels(adjust_hue(grey.view(), 0.3), grey));
  EXPECT_EQ(usage_error([&] { adjust_hue(image.view(), 0.6); }), "adjust_hue: factor 0.600000, -0.5 to 0.5 expected");
}

TEST(ValueTables, InvertPosterizeSolarize) {
  const Image image = row_of({0, 100, 127, 128, 255}, 1);
  EXPECT_THAT(pixels_of(invert(image.view())), ElementsAre(255, 155, 128, 127, 0));
  EXPECT_THAT(pixels_of(posterize(image.view(), 1)), ElementsAre(0, 0, 0, 128, 128));
  EXPECT_THAT(pixels_of(posterize(image.view(), 4)), ElementsAre(0, 96, 112, 128, 240));
  EXPECT_TRUE(same_pixels(posterize(image.view(), 8), image));
  EXPECT_THAT(pixels_of(solarize(image.view(), 128)), ElementsAre(0, 100, 127, 127, 0));
  EXPECT_EQ(usage_error([&] { posterize(image.view(), -1); }), "posterize: -1 bits, 0 to 8 expected");
  usage_error([&] { posterize(image.view(), 9); });
}

TEST(Autocontrast, StretchesEachChannel) {
  const Image image = row_of({10, 5, 0, 60, 5, 100, 110, 5, 255}, 3);
  EXPECT_THAT(pixels_of(autocontrast(image.view())), ElementsAre(0, 5, 0, 127, 5, 100, 255, 5, 255));
}

TEST(Equalize, SpreadsTheValuesEvenly) {
  Image image(1, 1024, 1);
  for (int x = 0; x < 1024; ++x) image.row(0)[x] = std::uint8_t(100 + x / 256);  // 100, 101, 102, 103
  const Image out = equalize(image.view());
  // 768 pixels below the last value, 3 a step: 1, 257, 513, 769 of them, over 3.
  EXPECT_EQ(out.row(0)[0], 0);
  EXPECT_EQ(out.row(0)[256], 85);
  EXPECT_EQ(out.row(0)[512], 171);
  EXPECT_EQ(out.row(0)[768], 255);
  const Image flat = row_of({9, 9, 9, 9}, 1);
  EXPECT_TRUE(same_pixels(equalize(flat.view()), flat));
}

}  // namespace
}  // namespace lockstep::data
