#include "lockstep/data/codecs/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::picture;
using testing::pixels_of;
using testing::png_chunk;
using testing::png_file;
using testing::same_pixels;
using ::testing::StartsWith;
using testing::usage_error;

const Bytes kPalette = png_chunk("PLTE", {9, 8, 7, 50, 60, 70});

std::vector<int> decoded(const Bytes& file) { return pixels_of(decode_png(file, "a.png")); }

// The first of the three channels; checks that the others are equal.
std::vector<int> decoded_grey(const Bytes& file) {
  const std::vector<int> pixels = decoded(file);
  std::vector<int> grey;
  for (std::size_t i = 0; i < pixels.size(); i += 3) {
    EXPECT_EQ(pixels[i + 1], pixels[i]);
    EXPECT_EQ(pixels[i + 2], pixels[i]);
    grey.push_back(pixels[i]);
  }
  return grey;
}

TEST(DecodePng, RgbComesBackAsItWas) {
  const Image original = picture(37, 53);
  EXPECT_TRUE(same_pixels(decode_png(png_file(original, false), "a.png"), original));
  EXPECT_TRUE(same_pixels(decode_png(png_file(original, true), "a.png"), original));
}

TEST(DecodePng, FewBitsOfGreySpreadOverTheRange) {
  EXPECT_EQ(decoded_grey(png_file({8, 1, 1, 0}, {{0xa5}})), (std::vector<int>{255, 0, 255, 0, 0, 255, 0, 255}));
  EXPECT_EQ(decoded_grey(png_file({4, 1, 2, 0}, {{0x1b}})), (std::vector<int>{0, 85, 170, 255}));
  EXPECT_EQ(decoded_grey(png_file({2, 1, 4, 0}, {{0x3c}})), (std::vector<int>{51, 204}));
  EXPECT_EQ(decoded_grey(png_file({3, 1, 8, 0}, {{0, 77, 255}})), (std::vector<int>{0, 77, 255}));
}

// As Pillow: its mode I;16 is cut off, colour keeps the upper byte.
TEST(DecodePng, SixteenBits) {
  EXPECT_EQ(decoded_grey(png_file({4, 1, 16, 0}, {{0, 200, 0, 255, 1, 0, 255, 255}})),
            (std::vector<int>{200, 255, 255, 255}));
  EXPECT_EQ(decoded_grey(png_file({2, 1, 16, 4}, {{200, 9, 1, 1, 3, 200, 1, 1}})), (std::vector<int>{200, 3}));
  EXPECT_EQ(decoded(png_file({1, 1, 16, 2}, {{200, 9, 3, 200, 0, 255}})), (std::vector<int>{200, 3, 0}));
  EXPECT_EQ(decoded(png_file({1, 1, 16, 6}, {{200, 9, 3, 200, 0, 255, 7, 7}})), (std::vector<int>{200, 3, 0}));
}

TEST(DecodePng, AlphaAndTransparencyAreDropped) {
  EXPECT_EQ(decoded_grey(png_file({2, 1, 8, 4}, {{200, 0, 100, 128}})), (std::vector<int>{200, 100}));
  EXPECT_EQ(decoded(png_file({1, 1, 8, 6}, {{1, 2, 3, 0}})), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(decoded_grey(png_file({2, 1, 8, 0}, {{50, 51}}, png_chunk("tRNS", {0, 50}))), (std::vector<int>{50, 51}));
  Bytes transparent = kPalette;
  const Bytes alpha = png_chunk("tRNS", {0, 128});
  transparent.insert(transparent.end(), alpha.begin(), alpha.end());
  EXPECT_EQ(decoded(png_file({2, 1, 8, 3}, {{1, 0}}, transparent)), (std::vector<int>{50, 60, 70, 9, 8, 7}));
}

TEST(DecodePng, PaletteEntriesThatAreNotThereAreBlack) {
  EXPECT_EQ(decoded(png_file({3, 1, 8, 3}, {{0, 2, 200}}, kPalette)), (std::vector<int>{9, 8, 7, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(decoded(png_file({4, 1, 2, 3}, {{0x1b}}, kPalette)),
            (std::vector<int>{9, 8, 7, 50, 60, 70, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(decoded(png_file({2, 1, 1, 3}, {{0x40}}, kPalette)), (std::vector<int>{9, 8, 7, 50, 60, 70}));
  EXPECT_THAT(usage_error([] {
                decode_png(png_file({1, 1, 8, 3}, {{0}}), "a.png");
              }),
              StartsWith("'a.png': damaged PNG ("));
}

TEST(DecodePng, GammaAndTextAreIgnored) {
  Bytes before = png_chunk("gAMA", {0, 1, 0x86, 0xa0});
  const Bytes text = png_chunk("tEXt", {'a', 0, 'b'});
  before.insert(before.end(), text.begin(), text.end());
  EXPECT_EQ(decoded_grey(png_file({2, 1, 8, 0}, {{50, 51}}, before)), (std::vector<int>{50, 51}));
}

TEST(DecodePng, TruncationBeforeTheLastPixelIsOneClearError) {
  const Bytes file = png_file(picture(20, 20), false);
  const std::size_t data_end = file.size() - 12;  // the chunk IEND says nothing
  for (std::size_t length = 0; length < data_end; ++length) {
    const Bytes part(file.begin(), file.begin() + std::ptrdiff_t(length));
    EXPECT_THAT(usage_error([&] { decode_png(part, "dir/a.png"); }),
                AllOf(StartsWith("'dir/a.png': truncated"),
                      AnyOf(HasSubstr(" of " + std::to_string(length)), HasSubstr("the file can hold"))))
        << length;
  }
  const Bytes without_end(file.begin(), file.begin() + std::ptrdiff_t(data_end));
  EXPECT_TRUE(same_pixels(decode_png(without_end, "a.png"), picture(20, 20)));
}

TEST(DecodePng, DamageAtAnyByteIsNoticed) {
  const Bytes file = png_file(picture(12, 12), true);
  for (std::size_t place = 8; place < file.size() - 12; ++place) {
    for (const int flip : {0x01, 0x20, 0xff}) {
      Bytes damaged = file;
      damaged[place] = std::uint8_t(damaged[place] ^ flip);
      EXPECT_THAT(usage_error([&] { decode_png(damaged, "a.png"); }), StartsWith("'a.png': ")) << place;
    }
  }
}

TEST(DecodePng, MissingRowsAreAnError) {
  EXPECT_THAT(usage_error([] {
                decode_png(png_file({2, 3, 8, 0}, {{1, 2}, {3, 4}}), "a.png");
              }),
              StartsWith("'a.png': damaged PNG ("));
}

TEST(DecodePng, RefusesHugeSizesBeforeTakingMemory) {
  EXPECT_EQ(usage_error([] {
              decode_png(png_file({178956971, 1, 8, 0}, {{1}}), "a.png");
            }),
            "'a.png': image of 178956971x1 pixels, at most 178956970 are read");
  EXPECT_THAT(usage_error([] {
                decode_png(png_file({0x7fffffff, 0x7fffffff, 8, 0}, {{1}}), "a.png");
              }),
              HasSubstr("at most 178956970"));
  EXPECT_THAT(usage_error([] {
                decode_png(png_file({10000, 10000, 8, 2}, {{1}}), "a.png");
              }),
              StartsWith("'a.png': truncated: image of 10000x10000 pixels, the file can hold "));
}

}  // namespace
}  // namespace lockstep::data
