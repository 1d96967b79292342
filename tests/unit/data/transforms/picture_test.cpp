#include "lockstep/data/transforms/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using namespace testing;

TEST(Picture, CroppingCopiesNothing) {
  const Image image = picture(10, 12);
  Picture one = Picture::borrowed(image.view());
  one.crop(2, 3, {4, 5});
  EXPECT_EQ(one.size(), (Size{4, 5}));
  EXPECT_EQ(one.pixels().pixels, image.row(2) + 3 * 3);
  one.crop(1, 1, {2, 2});
  EXPECT_EQ(one.pixels().pixels, image.row(3) + 4 * 3);
}

TEST(Picture, CropsOfAMirroredPictureCountFromItsOwnLeft) {
  const Image image = picture(10, 12);
  Picture lazy = Picture::borrowed(image.view());
  lazy.mirror();
  EXPECT_TRUE(lazy.mirrored());
  lazy.crop(2, 1, {4, 5});
  const Image eager = mirrored(image.view());
  EXPECT_TRUE(same_pixels(copy_of(lazy.pixels()), copy_of(eager.view().part(2, 1, 4, 5))));
  EXPECT_FALSE(lazy.mirrored()) << "the pixels are in order now";
}

TEST(Picture, MirroredTwiceIsTheSame) {
  const Image image = picture(3, 4, 1);
  Picture one = Picture::borrowed(image.view());
  one.mirror();
  one.mirror();
  EXPECT_EQ(one.pixels().pixels, image.row(0));
  EXPECT_TRUE(same_pixels(mirrored(mirrored(image.view()).view()), image));
}

TEST(Picture, CopiesShareThePixels) {
  Picture one(picture(4, 4));
  Picture two = one;
  EXPECT_EQ(one.pixels().pixels, two.pixels().pixels);
  one = Picture();
  EXPECT_TRUE(same_pixels(copy_of(two.pixels()), picture(4, 4)));
}

TEST(Picture, RefusesCropsThatAreNotInside) {
  Picture one(picture(10, 12));
  EXPECT_EQ(usage_error([&] { one.crop(7, 0, {4, 5}); }), "crop: 4x5 from row 7, column 0 in a picture of 10x12");
  usage_error([&] { one.crop(0, -1, {4, 5}); });
  usage_error([&] { one.crop(0, 8, {4, 5}); });
  usage_error([&] { one.crop(0, 0, {0, 5}); });
  EXPECT_EQ(one.size(), (Size{10, 12}));
}

// Gives exactly what is asked for, and counts.
class Later : public DeferredImage {
 public:
  Size size() const override { return {9, 11}; }
  int channels() const override { return 3; }
  ImagePart part(const CropBox& box) const override {
    asked.push_back(box);
    const Image whole = picture(9, 11);
    return {copy_of(whole.view().part(box.top, box.left, box.size.height, box.size.width)), box.top, box.left};
  }
  mutable std::vector<CropBox> asked;
};

TEST(Picture, IsDecodedOnceAndAsFarAsItIsSeen) {
  const auto later = std::make_shared<const Later>();
  Picture lazy(later);
  EXPECT_EQ(lazy.size(), (Size{9, 11}));
  EXPECT_EQ(lazy.owned_bytes(), 9u * 11 * 3);
  lazy.crop(1, 2, {6, 8});
  lazy.mirror();
  lazy.crop(2, 1, {3, 4});
  EXPECT_TRUE(later->asked.empty()) << "nobody has looked at pixels";
  const Picture copy = lazy;
  Picture eager(picture(9, 11));
  eager.crop(1, 2, {6, 8});
  eager.mirror();
  eager.crop(2, 1, {3, 4});
  EXPECT_TRUE(same_pixels(copy_of(lazy.window()), copy_of(eager.window())));
  EXPECT_TRUE(same_pixels(copy_of(lazy.pixels()), copy_of(eager.pixels())));
  EXPECT_EQ(later->asked, (std::vector<CropBox>{{3, 5, {3, 4}}}));
  EXPECT_TRUE(copy.mirrored());
  lazy.replace(picture(2, 2));
  EXPECT_EQ(lazy.owned_bytes(), 12u);
}

}  // namespace
}  // namespace lockstep::data
