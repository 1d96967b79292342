#include "lockstep/data/transforms/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "lockstep/data/transforms/crop.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using namespace testing;

TEST(ResizeTransform, ToASizeOrByTheSmallerEdge) {
  base::RandomStream unused(0, 0, 0);
  const Image image = picture(20, 40);
  Picture one = Picture::borrowed(image.view());
  Resize(10).apply(one, unused);
  EXPECT_TRUE(same_pixels(one, resize(image.view(), {10, 20})));
  Picture two = Picture::borrowed(image.view());
  Resize(10, Interpolation::bicubic, 15).apply(two, unused);
  EXPECT_TRUE(same_pixels(two, resize(image.view(), {7, 15}, Interpolation::bicubic)));
  Picture three = Picture::borrowed(image.view());
  Resize({20, 40}).apply(three, unused);
  EXPECT_EQ(three.pixels().pixels, image.row(0)) << "nothing to do, nothing copied";
  EXPECT_EQ(usage_error([] { Resize({0, 3}); }), "Resize: to 0x3, at least 1x1 expected");
  usage_error([] { Resize(0); });
  usage_error([] { Resize(10, Interpolation::bilinear, 10); });
}

// Counts what is asked for.
class Watched : public DeferredImage {
 public:
  explicit Watched(Image image) : image_(std::move(image)) {}
  Size size() const override { return image_.size(); }
  int channels() const override { return image_.channels(); }
  ImagePart part(const CropBox& box) const override {
    asked.push_back(box);
    return {copy_of(image_.view())};
  }
  mutable std::vector<CropBox> asked;

 private:
  Image image_;
};

TEST(ResizeTransform, ComputesOnlyWhatTheCropBehindItShows) {
  base::RandomStream unused(0, 0, 0);
  const auto source = std::make_shared<const Watched>(picture(100, 300));
  Picture one(source);
  Resize(50).apply(one, unused);
  CenterCrop({40, 40}).apply(one, unused);
  EXPECT_TRUE(source->asked.empty()) << "nobody has looked at pixels";
  const Image whole = resize(picture(100, 300).view(), {50, 150});
  EXPECT_TRUE(same_pixels(one, copy_of(whole.view().part(5, 55, 40, 40))));
  EXPECT_EQ(source->asked, (std::vector<CropBox>{{9, 109, {82, 82}}}));
}

// 7,680,000 rows, of which 224 are seen. Rows of one pixel are resized as those of 256 equal ones.
TEST(ResizeTransform, MakesThePartOfAPictureThatIsTooLargeAsAWhole) {
  base::RandomStream unused(0, 0, 0);
  const Image thin = picture(30'000, 1);
  Picture one = Picture::borrowed(thin.view());
  Resize(256).apply(one, unused);
  EXPECT_EQ(one.size(), (Size{7'680'000, 256}));
  CenterCrop({224, 224}).apply(one, unused);
  const Image column = resize(thin.view(), {7'680'000, 1});
  Image expected(224, 224, 3);
  for (int y = 0; y < 224; ++y) {
    for (int x = 0; x < 224; ++x) std::copy_n(column.row(3'839'888 + y), 3, expected.row(y) + 3 * x);
  }
  EXPECT_TRUE(same_pixels(one, expected));
}

TEST(ChooseCrop, StaysInsideAndWithinItsLimits) {
  const RandomResizedCropOptions options{.scale = {0.2, 0.5}};
  for (std::uint64_t index = 0; index < 2000; ++index) {
    base::RandomStream random(1, 2, index);
    const CropBox box = choose_crop({300, 400}, options, random);
    EXPECT_GE(box.top, 0);
    EXPECT_GE(box.left, 0);
    EXPECT_LE(box.top + box.size.height, 300);
    EXPECT_LE(box.left + box.size.width, 400);
    const double area = double(box.size.height) * box.size.width / (300 * 400);
    const double ratio = double(box.size.width) / box.size.height;
    EXPECT_TRUE(area > 0.195 && area < 0.505) << area;
    EXPECT_TRUE(ratio > 0.74 && ratio < 1.35) << ratio;
  }
}

TEST(ChooseCrop, TakesTheMiddleWhereNoBoxFits) {
  base::RandomStream random(1, 2, 3);
  const RandomResizedCropOptions whole{.scale = {1, 1}};
  const CropBox wide = choose_crop({10, 200}, whole, random);  // 4/3 of 10 is 13
  EXPECT_EQ(wide.size, (Size{10, 13}));
  EXPECT_EQ(wide.left, 93);
  const CropBox tall = choose_crop({200, 10}, whole, random);
  EXPECT_EQ(tall.size, (Size{13, 10}));
  EXPECT_EQ(tall.top, 93);
}

TEST(RandomResizedCropTransform, ResizesTheBoxThatItDraws) {
  const Image image = picture(50, 60);
  const RandomResizedCropOptions options{.interpolation = Interpolation::bicubic};
  for (std::uint64_t index = 0; index < 20; ++index) {
    base::RandomStream random(1, 2, index), same = random;
    Picture one = Picture::borrowed(image.view());
    RandomResizedCrop({16, 17}, options).apply(one, random);
    const CropBox box = choose_crop({50, 60}, options, same);
    const ImageView part = image.view().part(box.top, box.left, box.size.height, box.size.width);
    EXPECT_TRUE(same_pixels(one, resize(part, {16, 17}, Interpolation::bicubic)));
  }
}

TEST(RandomResizedCropTransform, RefusesWhatItCannotDraw) {
  EXPECT_EQ(usage_error([] { RandomResizedCrop({0, 8}); }), "RandomResizedCrop: size 0x8, at least 1x1 expected");
  EXPECT_EQ(usage_error([] {
              RandomResizedCrop(8, {.scale = {0.5, 0.2}});
            }),
            "RandomResizedCrop: scale from 0.500000 to 0.200000, 0 < low <= high expected");
  EXPECT_EQ(usage_error([] {
              RandomResizedCrop(8, {.ratio = {0, 1}});
            }),
            "RandomResizedCrop: ratio from 0.000000 to 1.000000, 0 < low <= high expected");
}

TEST(RandomHorizontalFlipTransform, MirrorsHalfOfTheTime) {
  int mirrored = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    base::RandomStream random(1, 2, index);
    Picture one(picture(2, 2));
    RandomHorizontalFlip().apply(one, random);
    mirrored += one.mirrored();
  }
  EXPECT_NEAR(mirrored, 1000, 5 * 23);
  EXPECT_EQ(usage_error([] { RandomHorizontalFlip(1.5); }), "RandomHorizontalFlip: p 1.500000, 0 to 1 expected");
}

TEST(RandomVerticalFlipTransform, TurnsHalfOfThemUpsideDown) {
  base::RandomStream unused(0, 0, 0);
  Picture one(ramp(3, 2));
  one.mirror();
  RandomVerticalFlip(1).apply(one, unused);
  EXPECT_THAT(pixels_of(one), ElementsAre(6, 5, 4, 3, 2, 1));
  int turned = 0;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    base::RandomStream random(1, 2, index);
    Picture two(ramp(2, 1));
    RandomVerticalFlip().apply(two, random);
    turned += two.pixels().row(0)[0] == 2;
  }
  EXPECT_NEAR(turned, 1000, 5 * 23);
  EXPECT_EQ(usage_error([] { RandomVerticalFlip(-0.5); }), "RandomVerticalFlip: p -0.500000, 0 to 1 expected");
}

TEST(GrayscaleTransform, WeighsTheColours) {
  base::RandomStream unused(0, 0, 0);
  Image image(1, 4, 3);
  const std::uint8_t colors[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 200, 100, 50};
  std::copy_n(colors, 12, image.row(0));
  Picture one = Picture::borrowed(image.view());
  Grayscale().apply(one, unused);
  EXPECT_THAT(pixels_of(one), ElementsAre(76, 150, 29, 124));
  Picture three = Picture::borrowed(image.view());
  Grayscale(3).apply(three, unused);
  EXPECT_THAT(pixels_of(three), ElementsAre(76, 76, 76, 150, 150, 150, 29, 29, 29, 124, 124, 124));
  Grayscale(3).apply(one, unused);
  EXPECT_TRUE(same_pixels(one, copy_of(three.pixels()))) << "from one channel";
  EXPECT_EQ(usage_error([] { Grayscale(2); }), "Grayscale: 2 channels, 1 or 3 expected");
}

}  // namespace
}  // namespace lockstep::data
