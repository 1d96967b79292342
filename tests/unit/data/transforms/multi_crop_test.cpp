#include "lockstep/data/transforms/multi_crop.h"

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

// 1 2 3 / 4 5 6 / 7 8 9
TEST(FiveCrop, TakesTheCornersAndTheMiddle) {
  const std::vector<Picture> crops = FiveCrop(1).apply(Picture(ramp(3, 3)));
  ASSERT_EQ(crops.size(), 5u);
  std::vector<int> pixels;
  for (const Picture& crop : crops) pixels.push_back(pixels_of(crop).at(0));
  EXPECT_THAT(pixels, ElementsAre(1, 3, 7, 9, 5));
  EXPECT_EQ(FiveCrop({2, 3}).apply(Picture(ramp(3, 3)))[3].size(), (Size{2, 3}));
}

TEST(TenCrop, AddsThoseOfTheMirrorImageOrOfThePictureUpsideDown) {
  const Image image = picture(7, 9);
  Picture flipped(picture(7, 9));
  flipped.mirror();
  Image turned(7, 9, 3);
  for (int y = 0; y < 7; ++y) std::copy_n(image.row(6 - y), 27, turned.row(y));
  for (const bool vertical : {false, true}) {
    const std::vector<Picture> ten =
        TenCrop({4, 5}, {.vertical_flip = vertical}).apply(Picture::borrowed(image.view()));
    const std::vector<Picture> first = FiveCrop({4, 5}).apply(Picture::borrowed(image.view()));
    const std::vector<Picture> second = FiveCrop({4, 5}).apply(vertical ? Picture::borrowed(turned.view()) : flipped);
    ASSERT_EQ(ten.size(), 10u);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(pixels_of(ten[i]), pixels_of(first[i])) << i;
      EXPECT_EQ(pixels_of(ten[i + 5]), pixels_of(second[i])) << i;
    }
  }
  EXPECT_EQ(TenCrop(3).count(), 10);
  EXPECT_EQ(FiveCrop(3).count(), 5);
}

TEST(FiveCrop, RefusesASmallerPicture) {
  EXPECT_EQ(usage_error([] { FiveCrop(4).apply(Picture(ramp(3, 9))); }),
            "FiveCrop: 4x4 out of a picture of 3x9; choose a smaller crop or resize the picture before");
  EXPECT_EQ(usage_error([] { TenCrop({0, 3}); }), "TenCrop: size 0x3, at least 1x1 expected");
}

}  // namespace
}  // namespace lockstep::data
