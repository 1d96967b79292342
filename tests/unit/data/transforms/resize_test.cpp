#include "lockstep/data/transforms/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "lockstep/base/random.h"
#include "lockstep/data/pixel_memory.h"
#include "lockstep/data/transforms/transpose.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using namespace testing;

constexpr Interpolation kAll[] = {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic,
                                  Interpolation::box,     Interpolation::hamming,  Interpolation::lanczos};

Image grey(const std::vector<std::vector<std::uint8_t>>& rows) {
  Image image(int(rows.size()), int(rows[0].size()), 1);
  for (int y = 0; y < image.height(); ++y) std::ranges::copy(rows[std::size_t(y)], image.row(y));
  return image;
}

struct Golden {
  Size size;
  Interpolation how;
  std::vector<int> pixels;
};

// Pillow 13's answers for this picture. tests/parity/resize_test.py compares thousands.
TEST(Resize, GivesPillowsPixels) {
  const Image image = grey({{10, 200, 30, 250}, {0, 255, 90, 60}, {128, 7, 77, 177}});
  const Golden goldens[] = {
      {{2, 2}, Interpolation::nearest, {200, 250, 7, 177}},
      {{5, 3}, Interpolation::nearest, {10, 30, 250, 10, 30, 250, 0, 90, 60, 128, 77, 177, 128, 77, 177}},
      {{2, 2}, Interpolation::bilinear, {105, 131, 89, 107}},
      {{2, 6}, Interpolation::bilinear, {6, 114, 193, 81, 116, 179, 80, 90, 97, 85, 108, 133}},
      {{5, 3}, Interpolation::bilinear, {67, 115, 184, 71, 138, 138, 76, 173, 69, 86, 94, 116, 92, 42, 147}},
      {{2, 2}, Interpolation::bicubic, {106, 133, 88, 106}},
      {{2, 6}, Interpolation::bicubic, {0, 119, 219, 69, 109, 187, 82, 90, 95, 83, 107, 131}},
      {{5, 3}, Interpolation::bicubic, {67, 109, 196, 68, 145, 137, 72, 183, 58, 87, 89, 116, 96, 23, 163}},
  };
  for (const Golden& golden : goldens) {
    EXPECT_EQ(pixels_of(resize(image.view(), golden.size, golden.how)), golden.pixels)
        << golden.size.height << "x" << golden.size.width << " " << int(golden.how);
  }
  EXPECT_EQ(pixels_of(resize(image.view(), {2, 2}, Interpolation::bilinear, {0.5f, 0.25f, 3.25f, 2.5f})),
            (std::vector<int>{133, 104, 109, 100}));
}

TEST(Resize, ToTheSameSizeIsACopy) {
  const Image image = picture(9, 14);
  for (const Interpolation how : kAll) EXPECT_TRUE(same_pixels(resize(image.view(), {9, 14}, how), image));
}

TEST(Resize, OneColourStaysThatColour) {
  Image image(23, 41, 3);
  for (std::size_t i = 0; i < image.bytes(); ++i) image.row(0)[i] = std::uint8_t(i % 3 * 120 + 7);
  for (const Interpolation how : kAll) {
    for (const Size size : {Size{5, 5}, Size{60, 8}, Size{8, 60}, Size{100, 100}}) {
      const Image out = resize(image.view(), size, how);
      for (std::size_t i = 0; i < out.bytes(); ++i) ASSERT_EQ(out.row(0)[i], i % 3 * 120 + 7);
    }
  }
}

TEST(Resize, ChannelsDoNotTouchEachOther) {
  const Image image = picture(37, 29);
  for (const Interpolation how : kAll) {
    const Image all = resize(image.view(), {20, 33}, how);
    for (int c = 0; c < 3; ++c) {
      Image one(37, 29, 1);
      for (int i = 0; i < 37 * 29; ++i) one.row(0)[i] = image.row(0)[3 * i + c];
      const Image alone = resize(one.view(), {20, 33}, how);
      for (int i = 0; i < 20 * 33; ++i) ASSERT_EQ(all.row(0)[3 * i + c], alone.row(0)[i]);
    }
  }
}

TEST(Resize, APartIsResizedAsIfItWereAlone) {
  const Image image = picture(50, 60);
  const ImageView part = image.view().part(7, 9, 31, 40);
  for (const Interpolation how : kAll) {
    EXPECT_TRUE(same_pixels(resize(part, {24, 24}, how), resize(copy_of(part).view(), {24, 24}, how)));
  }
}

// Any rectangle of the result, made of what it needs of the source alone.
TEST(Resize, APartOfTheResultIsThatOfTheWhole) {
  base::RandomStream random(1, 2, 3);
  const auto below = [&](int count) { return int(random.below(std::uint32_t(count))); };
  const Size sizes[] = {{37, 53}, {20, 20}, {1, 40}, {200, 3}, {16, 90}, {53, 37}, {37, 20}, {5, 53}};
  for (const Size from : {Size{37, 53}, Size{1, 300}, Size{300, 2}, Size{15, 20}, Size{20, 20}}) {
    const Image image = picture(from.height, from.width);
    for (const Size to : sizes) {
      for (const Interpolation how : kAll) {
        const Image whole = resize(image.view(), to, how);
        for (int i = 0; i < 8; ++i) {
          const int top = below(to.height), left = below(to.width);
          const CropBox box{top, left, {1 + below(to.height - top), 1 + below(to.width - left)}};
          Picture later = resized(Picture::borrowed(image.view()), to, how);
          EXPECT_EQ(later.size(), to);
          later.crop(box.top, box.left, box.size);
          ASSERT_TRUE(same_pixels(later, copy_of(whole.view().part(top, left, box.size.height, box.size.width))))
              << to_string(from) << " to " << to_string(to) << ", " << to_string(box.size) << " from " << top << ", "
              << left << " " << int(how);
        }
      }
    }
  }
}

TEST(Resize, WhatIsSeenOfThePictureIsResized) {
  const Image image = picture(30, 40);
  for (const Interpolation how : kAll) {
    Picture one = Picture::borrowed(image.view());
    one.crop(3, 5, {20, 30});
    one.mirror();
    const Image whole = resize(mirrored(image.view().part(3, 5, 20, 30)).view(), {33, 17}, how);
    Picture later = resized(one, {33, 17}, how), copy = later;
    EXPECT_FALSE(later.mirrored());
    later.crop(30, 2, {3, 9});
    later.mirror();
    EXPECT_TRUE(same_pixels(later, mirrored(whole.view().part(30, 2, 3, 9))));
    EXPECT_TRUE(same_pixels(copy, whole));
    Picture again = resized(resized(one, {33, 17}, how), {9, 11}, how);
    again.crop(4, 0, {5, 6});
    EXPECT_TRUE(same_pixels(again, copy_of(resize(whole.view(), {9, 11}, how).view().part(4, 0, 5, 6))));
  }
}

// Of memory that the thread knows of: pictures as large as these are not kept, so what is kept was scratch.
TEST(Resize, KeepsItsScratchForTheNextPictureUnlessItIsLarge) {
  std::thread([] {
    const auto narrow = [](Size from, Size to) {
      Image image(from, 3);
      std::memset(image.row(0), 7, image.bytes());
      const Image out = resize(image.view(), to);
      EXPECT_GT(std::min(image.bytes(), out.bytes()), kKeptPixelBytes);
      EXPECT_EQ(out.row(to.height - 1)[0], 7);
    };
    ASSERT_EQ(kept_pixel_bytes(), 0u);
    narrow({2500, 2500}, {2500, 2450});
    const std::size_t scratch = std::size_t(kBlockRows) * 3 * (2500 + 2450), kept = kept_pixel_bytes();
    EXPECT_GE(kept, scratch);
    EXPECT_LE(kept, scratch + scratch / 8);
    narrow({2500, 2500}, {2500, 2450});
    EXPECT_EQ(kept_pixel_bytes(), kept) << "the same memory again";
    narrow({kBlockRows, 400'000}, {kBlockRows, 390'000});
    EXPECT_EQ(kept_pixel_bytes(), kept) << "a scratch as large as these pictures goes back";
  }).join();
}

TEST(Resize, MakesNoMorePixelsThanAPictureMayHave) {
  const Image thin(30'000, 1, 3);
  EXPECT_EQ(usage_error([&] {
              resize(thin.view(), {7'680'000, 256});
            }),
            "resize: a picture of 30000x1 to 7680000x256, at most 178956970 pixels are made; choose a smaller size or "
            "crop it");
  Picture later = resized(Picture::borrowed(thin.view()), {7'680'000, 256}, Interpolation::bilinear);
  EXPECT_THAT(usage_error([&] { later.pixels(); }), HasSubstr("to 7680000x256, at most"));
  EXPECT_EQ(usage_error([&] {
              resized(later, {0, 5}, Interpolation::bilinear);
            }),
            "resize: to 0x5, at least 1x1 expected");
}

TEST(Resize, RefusesEmptySizesAndBoxesOutside) {
  const Image image = picture(10, 20);
  EXPECT_EQ(usage_error([&] { resize(image.view(), {0, 5}); }), "resize: to 0x5, at least 1x1 expected");
  EXPECT_EQ(usage_error([&] { resize(image.view(), {5, -1}); }), "resize: to 5x-1, at least 1x1 expected");
  for (const Box box : {Box{-1, 0, 5, 5}, Box{0, 0, 21, 5}, Box{0, 0, 5, 10.5f}, Box{5, 0, 5, 5}, Box{0, 7, 5, 6}}) {
    EXPECT_THAT(usage_error([&] {
                  resize(image.view(), {5, 5}, Interpolation::bilinear, box);
                }),
                HasSubstr(" in a picture of 10x20"));
  }
}

TEST(ResizedByEdge, FollowsTorchvision) {
  EXPECT_EQ(resized_by_edge({100, 200}, 50), (Size{50, 100}));
  EXPECT_EQ(resized_by_edge({200, 100}, 50), (Size{100, 50}));
  EXPECT_EQ(resized_by_edge({333, 500}, 256), (Size{256, 384}));
  EXPECT_EQ(resized_by_edge({333, 500}, 224), (Size{224, 336}));
  EXPECT_EQ(resized_by_edge({100, 100}, 7), (Size{7, 7}));
  EXPECT_EQ(resized_by_edge({100, 200}, 50, 80), (Size{40, 80}));
  EXPECT_EQ(resized_by_edge({100, 200}, 50, 100), (Size{50, 100}));
  EXPECT_EQ(resized_by_edge({1, 178'956'970}, 256, 500), (Size{0, 500})) << "as Python rounds it down";
  EXPECT_EQ(
      usage_error([] {
        resized_by_edge({1, 178'956'970}, 256);
      }),
      "resize: a picture of 1x178956970 to an edge of 256, which makes the other one 45812984320; choose a max_size");
  EXPECT_EQ(usage_error([] { resized_by_edge({10, 10}, 0); }), "resize: to an edge of 0, at least 1 expected");
  EXPECT_EQ(usage_error([] {
              resized_by_edge({10, 10}, 50, 50);
            }),
            "resize: max_size 50, more than the edge of 50 expected");
}

}  // namespace
}  // namespace lockstep::data
