#include "lockstep/data/transforms/crop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/data/transforms/resize.h"
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
  const Image out = pad(image.view(), {1, 0, 0, 1}, {.fill = {7, 8, 9}});
  EXPECT_THAT(pixels_of(out), ElementsAre(7, 8, 9, 0, 1, 2, 7, 8, 9, 7, 8, 9));
  EXPECT_EQ(usage_error([&] { pad(image.view(), {0, -1}); }), "pad: padding of -1, at least 0 expected");
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

TEST(CenterCrop, AsksOnlyForWhatIsSeenOfASmallerPicture) {
  base::RandomStream unused(0, 0, 0);
  Picture tall = resized(Picture(picture(1000, 2)), {2'000'000, 500}, Interpolation::nearest);  // too large as a whole
  CenterCrop({4, 700}).apply(tall, unused);
  const Image out = image_of(tall);
  EXPECT_EQ(out.size(), (Size{4, 700}));
  const Image middle = picture(1000, 2);
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(out.row(0)[3 * 99 + c], 0);
    EXPECT_EQ(out.row(0)[3 * 100 + c], middle.row(499)[c]);
    EXPECT_EQ(out.row(3)[3 * 599 + c], middle.row(500)[3 + c]);
    EXPECT_EQ(out.row(3)[3 * 600 + c], 0);
  }
}

TEST(CenterCrop, MakesNoMorePixelsThanAPictureMayHave) {
  base::RandomStream unused(0, 0, 0);
  Picture one(ramp(5, 3));
  EXPECT_EQ(
      usage_error([&] {
        CenterCrop({100'000, 100'000}).apply(one, unused);
      }),
      "crop: a picture of 5x3 to 100000x100000, at most 178956970 pixels are made; choose a smaller size or crop it");
  usage_error([&] { pad(ramp(5, 3).view(), {200'000'000, 0, 0, 0}); });
  const RandomCropOptions options{.pad_if_needed = true, .border = {PaddingMode::edge}};
  usage_error([&] { RandomCrop(50'000, options).apply(one, unused); });
}

TEST(Crops, OfOneNumberAreSquareAndPaddingIsTorchvisions) {
  base::RandomStream random(1, 2, 3);
  Picture one(picture(20, 30)), two(picture(20, 30));
  CenterCrop(8).apply(one, random);
  CenterCrop({8, 8}).apply(two, random);
  EXPECT_EQ(pixels_of(one), pixels_of(two));
  base::RandomStream a(1, 2, 4), b = a;
  RandomCrop(12, {.padding = 4}).apply(one, a);
  RandomCrop({12, 12}, {.padding = {4, 4, 4, 4}}).apply(two, b);
  EXPECT_EQ(one.size(), (Size{12, 12}));
  EXPECT_EQ(pixels_of(one), pixels_of(two));
  const Padding wide{1, 2};
  EXPECT_THAT((std::vector<int>{wide.left, wide.top, wide.right, wide.bottom}), ElementsAre(1, 2, 1, 2));
}

// A place in the border alone: all fill.
TEST(RandomCrop, MayShowNothingOfThePicture) {
  int nothing = 0;
  for (std::uint64_t index = 0; index < 50; ++index) {
    Picture one(picture(2, 2));
    base::RandomStream random(1, 2, index);
    RandomCrop(3, {.padding = 9, .border = {.fill = {7, 8, 9}}}).apply(one, random);
    const std::vector<int> pixels = pixels_of(one);
    bool fill = true;
    for (std::size_t i = 0; i < pixels.size(); ++i) fill = fill && pixels[i] == int(7 + i % 3);
    nothing += fill;
  }
  EXPECT_GT(nothing, 10);
}

TEST(RandomCrop, EveryPlaceIsAsLikely) {
  std::map<int, int> corners;
  for (std::uint64_t index = 0; index < 6000; ++index) {
    Picture one(ramp(4, 3));
    base::RandomStream random(1, 2, index);
    RandomCrop({3, 1}).apply(one, random);
    ASSERT_EQ(one.size(), (Size{3, 1}));
    ++corners[one.pixels().row(0)[0]];
  }
  EXPECT_THAT(corners, ::testing::SizeIs(6));  // two rows, three columns
  for (const auto& [corner, count] : corners) EXPECT_NEAR(count, 1000, 5 * 29) << corner;
}

TEST(RandomCrop, IsAPartOfThePaddedPicture) {
  const Image image = picture(10, 12);
  const Padding padding = {3, 2, 4, 5};
  for (const auto mode : {PaddingMode::constant, PaddingMode::edge, PaddingMode::reflect, PaddingMode::symmetric}) {
    const Border border = {mode, {1, 2, 3}};
    const Image whole = pad(image.view(), padding, border);
    for (std::uint64_t index = 0; index < 50; ++index) {
      Picture one = Picture::borrowed(image.view());
      base::RandomStream random(1, 2, index), same = random;
      RandomCrop({6, 7}, {.padding = padding, .border = border}).apply(one, random);
      const int top = int(same.below(12)), left = int(same.below(13));
      EXPECT_TRUE(same_pixels(one, copy_of(whole.view().part(top, left, 6, 7))));
    }
  }
}

TEST(RandomCrop, PadsIfNeededAndElseRefuses) {
  Picture one(ramp(2, 2));
  base::RandomStream random(1, 2, 3);
  EXPECT_EQ(usage_error([&] {
              RandomCrop({3, 2}).apply(one, random);
            }),
            "RandomCrop: 3x2 out of a picture of 2x2 (padding included); choose a smaller crop, more padding or "
            "pad_if_needed");
  RandomCrop({3, 2}, {.pad_if_needed = true, .border = {PaddingMode::edge}}).apply(one, random);
  EXPECT_EQ(one.size(), (Size{3, 2}));
  EXPECT_THAT(pixels_of(one), ::testing::AnyOf(ElementsAre(1, 2, 1, 2, 3, 4), ElementsAre(1, 2, 3, 4, 3, 4)));
  EXPECT_EQ(usage_error([] { RandomCrop({1, 0}); }), "RandomCrop: size 1x0, at least 1x1 expected");
  EXPECT_EQ(usage_error([] {
              RandomCrop(1, {.padding = {0, 0, -2, 0}});
            }),
            "RandomCrop: padding of -2, at least 0 expected");
}

}  // namespace
}  // namespace lockstep::data
