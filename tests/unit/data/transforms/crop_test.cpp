#include "lockstep/data/transforms/crop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

TEST(Padded, FollowsNumpy) {
  const std::vector<int> line = {0, 1, 2, 3};
  EXPECT_THAT(padded(line, 2, 1, PaddingMode::constant), ElementsAre(-1, -1, 0, 1, 2, 3, -1));
  EXPECT_THAT(padded(line, 2, 1, PaddingMode::edge), ElementsAre(0, 0, 0, 1, 2, 3, 3));
  EXPECT_THAT(padded(line, 2, 2, PaddingMode::reflect), ElementsAre(2, 1, 0, 1, 2, 3, 2, 1));
  EXPECT_THAT(padded(line, 2, 2, PaddingMode::symmetric), ElementsAre(1, 0, 0, 1, 2, 3, 3, 2));
  EXPECT_THAT(padded({0, 1}, 4, 3, PaddingMode::reflect), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0));
  EXPECT_THAT(padded({0, 1}, 5, 0, PaddingMode::symmetric), ElementsAre(0, 0, 1, 1, 0, 0, 1));
  EXPECT_THAT(padded({0}, 2, 2, PaddingMode::reflect), ElementsAre(0, 0, 0, 0, 0));
}

TEST(Pad, FillsWithTheColour) {
  Image image(1, 1, 3);
  for (int c = 0; c < 3; ++c) image.row(0)[c] = std::uint8_t(c);
  const Image out = pad(image.view(), {.left = 1, .bottom = 1}, {.fill = {7, 8, 9}});
  EXPECT_THAT(pixels_of(out), ElementsAre(7, 8, 9, 0, 1, 2, 7, 8, 9, 7, 8, 9));
  EXPECT_EQ(usage_error([&] { pad(image.view(), {.top = -1}); }), "pad: padding of -1, at least 0 expected");
}

TEST(CenterCrop, TakesTheMiddleAndRoundsAsPython) {
  base::RandomStream unused(0, 0, 0);
  Picture odd(ramp(5, 3));
  CenterCrop({2, 2}).apply(odd, unused);  // from row 1.5 -> 2, column 0.5 -> 0
  EXPECT_THAT(pixels_of(odd), ElementsAre(7, 8, 10, 11));
  Picture small(ramp(1, 2));
  CenterCrop({2, 3}).apply(small, unused);
  EXPECT_THAT(pixels_of(small), ElementsAre(1, 2, 0, 0, 0, 0));
  EXPECT_EQ(usage_error([] { CenterCrop({0, 2}); }), "CenterCrop: size 0x2, at least 1x1 expected");
}

TEST(RandomCrop, EveryPlaceIsAsLikely) {
  std::map<int, int> corners;
  for (std::uint64_t index = 0; index < 6000; ++index) {
    Picture one(ramp(4, 3));
    base::RandomStream random(1, 2, index);
    RandomCrop({.size = {3, 1}}).apply(one, random);
    ASSERT_EQ(one.size(), (Size{3, 1}));
    ++corners[one.pixels().row(0)[0]];
  }
  EXPECT_THAT(corners, ::testing::SizeIs(6));  // two rows, three columns
  for (const auto& [corner, count] : corners) EXPECT_NEAR(count, 1000, 5 * 29) << corner;
}

TEST(RandomCrop, IsAPartOfThePaddedPicture) {
  const Image image = picture(10, 12);
  const Padding padding = {.left = 3, .top = 2, .right = 4, .bottom = 5};
  for (const auto mode : {PaddingMode::constant, PaddingMode::edge, PaddingMode::reflect, PaddingMode::symmetric}) {
    const Border border = {mode, {1, 2, 3}};
    const Image whole = pad(image.view(), padding, border);
    for (std::uint64_t index = 0; index < 50; ++index) {
      Picture one = Picture::borrowed(image.view());
      base::RandomStream random(1, 2, index), same = random;
      RandomCrop({.size = {6, 7}, .padding = padding, .border = border}).apply(one, random);
      const int top = int(same.below(12)), left = int(same.below(13));
      EXPECT_TRUE(same_pixels(one, copy_of(whole.view().part(top, left, 6, 7))));
    }
  }
}

TEST(RandomCrop, PadsIfNeededAndElseRefuses) {
  Picture one(ramp(2, 2));
  base::RandomStream random(1, 2, 3);
  EXPECT_EQ(usage_error([&] {
              RandomCrop({.size = {3, 2}}).apply(one, random);
            }),
            "RandomCrop: 3x2 out of a picture of 2x2 (padding included); choose a smaller crop, more padding or "
            "pad_if_needed");
  RandomCrop({.size = {3, 2}, .pad_if_needed = true, .border = {PaddingMode::edge}}).apply(one, random);
  EXPECT_EQ(one.size(), (Size{3, 2}));
  EXPECT_THAT(pixels_of(one), ::testing::AnyOf(ElementsAre(1, 2, 1, 2, 3, 4), ElementsAre(1, 2, 3, 4, 3, 4)));
  EXPECT_EQ(usage_error([] { RandomCrop({.size = {1, 0}}); }), "RandomCrop: size 1x0, at least 1x1 expected");
  EXPECT_EQ(usage_error([] {
              RandomCrop({.size = {1, 1}, .padding = {.right = -2}});
            }),
            "RandomCrop: padding of -2, at least 0 expected");
}

}  // namespace
}  // namespace lockstep::data
