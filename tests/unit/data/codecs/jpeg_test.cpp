#include "lockstep/data/codecs/jpeg.h"

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
using testing::jpeg_file;
using testing::largest_difference;
using testing::picture;
using testing::pixels_of;
using testing::same_pixels;
using ::testing::StartsWith;
using testing::usage_error;

Image filled(int height, int width, const std::vector<std::uint8_t>& pixel) {
  Image image(height, width, int(pixel.size()));
  for (std::size_t i = 0; i < image.bytes(); ++i) image.row(0)[i] = pixel[i % pixel.size()];
  return image;
}

TEST(DecodeJpeg, GivesThePictureBack) {
  const Image original = picture(37, 53);
  const Image decoded = decode_jpeg(jpeg_file(original, {.quality = 100, .subsampled = false}), "a.jpg");
  EXPECT_EQ(decoded.channels(), 3);
  EXPECT_LE(largest_difference(decoded, original), 4);
}

TEST(DecodeJpeg, ProgressiveAndRestartsHaveThePixelsOfBaseline) {
  const Image original = picture(61, 40);
  const Image baseline = decode_jpeg(jpeg_file(original), "a.jpg");
  EXPECT_TRUE(same_pixels(decode_jpeg(jpeg_file(original, {.progressive = true}), "a.jpg"), baseline));
  EXPECT_TRUE(same_pixels(decode_jpeg(jpeg_file(original, {.restart_rows = 1}), "a.jpg"), baseline));
}

TEST(DecodeJpeg, ArithmeticCodesHaveThePixelsOfHuffmanCodes) {
  const Image original = picture(61, 40);
  const Image baseline = decode_jpeg(jpeg_file(original), "a.jpg");
  for (const bool progressive : {false, true})
    EXPECT_TRUE(same_pixels(decode_jpeg(jpeg_file(original, {.progressive = progressive, .arithmetic = true}), "a.jpg"),
                            baseline));
  const Image flat = filled(3000, 3000, {9, 9, 9});
  const Bytes small = jpeg_file(flat, {.progressive = true, .arithmetic = true});
  EXPECT_LT(small.size(), 30'000u) << "a tenth of a bit for a block in each of ten scans";
  EXPECT_EQ(decode_jpeg(small, "a.jpg").height(), 3000);
}

TEST(DecodeJpeg, GreyBecomesRgb) {
  const Image original = picture(16, 24, 1);
  const Image decoded = decode_jpeg(jpeg_file(original, {.quality = 100}), "a.jpg");
  ASSERT_EQ(decoded.channels(), 3);
  for (int x = 0; x < 24; ++x) {
    const std::uint8_t* pixel = decoded.row(9) + 3 * x;
    EXPECT_NEAR(pixel[0], original.row(9)[x], 2);
    EXPECT_EQ(pixel[1], pixel[0]);
    EXPECT_EQ(pixel[2], pixel[0]);
  }
}

TEST(DecodeJpeg, CmykIsInvertedInk) {
  const auto color = [](const std::vector<std::uint8_t>& stored) {
    const Bytes file = jpeg_file(filled(8, 8, stored), {.quality = 100, .cmyk = true});
    const std::vector<int> pixels = pixels_of(decode_jpeg(file, "a.jpg"));
    return std::vector<int>(pixels.begin(), pixels.begin() + 3);
  };
  EXPECT_EQ(color({255, 255, 255, 255}), (std::vector<int>{255, 255, 255}));
  EXPECT_EQ(color({255, 255, 255, 0}), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(color({0, 255, 255, 255}), (std::vector<int>{0, 255, 255}));
  EXPECT_EQ(color({255, 128, 0, 100}), (std::vector<int>{100, 50, 0}));
}

TEST(DecodeJpeg, BytesAfterTheEndDoNotMatter) {
  Bytes file = jpeg_file(picture(8, 8));
  const Image decoded = decode_jpeg(file, "a.jpg");
  file.insert(file.end(), {1, 2, 3});
  EXPECT_TRUE(same_pixels(decode_jpeg(file, "a.jpg"), decoded));
}

TEST(DecodeJpeg, TruncationAtEveryByteIsOneClearError) {
  for (const int kind : {0, 1, 2, 3}) {
    const Bytes file = jpeg_file(picture(20, 20), {.progressive = kind % 2 == 1, .arithmetic = kind >= 2});
    for (std::size_t length = 0; length < file.size(); ++length) {
      const Bytes part(file.begin(), file.begin() + std::ptrdiff_t(length));
      EXPECT_THAT(usage_error([&] { decode_jpeg(part, "dir/a.jpg"); }),
                  AllOf(StartsWith("'dir/a.jpg': "), HasSubstr("offset"), HasSubstr(" of " + std::to_string(length))))
          << length;
    }
  }
}

// Whatever a damaged file does, it is pixels or a UsageError; the sanitizers look on.
TEST(DecodeJpeg, DamageAtAnyByteIsPixelsOrAClearError) {
  for (const int kind : {0, 1, 2, 3}) {
    const Bytes file =
        jpeg_file(picture(24, 24), {.quality = 50, .progressive = kind % 2 == 1, .arithmetic = kind >= 2});
    int refused = 0;
    for (std::size_t place = 2; place < file.size(); ++place) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        Bytes damaged = file;
        damaged[place] = std::uint8_t(damaged[place] ^ flip);
        try {
          decode_jpeg(damaged, "a.jpg");
        } catch (const UsageError& error) {
          ++refused;
          EXPECT_THAT(error.what(), StartsWith("'a.jpg': "));
        }
      }
    }
    EXPECT_GT(refused, 50);
  }
}

// Where the first marker FF `code` stands.
std::ptrdiff_t marker(const Bytes& file, std::uint8_t code) {
  for (std::size_t i = 0; i + 1 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == code) return std::ptrdiff_t(i);
  }
  ADD_FAILURE() << "no marker " << int(code);
  return 0;
}
constexpr std::uint8_t kFrame = 0xc0;
constexpr std::uint8_t kScan = 0xda;

TEST(DecodeJpeg, RefusesHugeSizesBeforeTakingMemory) {
  Bytes file = jpeg_file(picture(8, 8));
  const std::size_t frame = std::size_t(marker(file, kFrame));
  const auto resize = [&](int height, int width) {
    file[frame + 5] = std::uint8_t(height >> 8);
    file[frame + 6] = std::uint8_t(height);
    file[frame + 7] = std::uint8_t(width >> 8);
    file[frame + 8] = std::uint8_t(width);
  };
  resize(60000, 60000);
  EXPECT_EQ(usage_error([&] { decode_jpeg(file, "a.jpg"); }),
            "'a.jpg': image of 60000x60000 pixels, at most 178956970 are read");
  resize(10000, 10000);
  EXPECT_THAT(usage_error([&] { decode_jpeg(file, "a.jpg"); }),
              StartsWith("'a.jpg': truncated: image of 10000x10000 pixels, the file can hold "));
}

TEST(DecodeJpeg, RefusesTooManyScans) {
  const Bytes file = jpeg_file(picture(8, 8, 1), {.progressive = true});
  std::vector<std::size_t> scans;
  for (std::size_t i = 0; i + 1 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == kScan) scans.push_back(i);
  }
  ASSERT_GE(scans.size(), 2u);
  const Bytes last(file.begin() + std::ptrdiff_t(scans.back()), file.end() - 2);
  Bytes bomb(file.begin(), file.end() - 2);
  for (int i = 0; i < 600; ++i) bomb.insert(bomb.end(), last.begin(), last.end());
  bomb.insert(bomb.end(), {0xff, 0xd9});
  EXPECT_THAT(usage_error([&] { decode_jpeg(bomb, "a.jpg"); }), HasSubstr("more than 500 scans at offset"));
}

// A grey, progressive, arithmetic-coded picture whose scans, the first of them DC, have no data: the decoder reads
// zeros.
Bytes empty_scans(int height, int width, int scans) {
  Bytes file = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0};
  file.insert(file.end(), 64, 1);
  const Bytes frame = {0xff,
                       0xca,
                       0,
                       11,
                       8,
                       std::uint8_t(height >> 8),
                       std::uint8_t(height),
                       std::uint8_t(width >> 8),
                       std::uint8_t(width),
                       1,
                       1,
                       0x11,
                       0};
  file.insert(file.end(), frame.begin(), frame.end());
  for (int scan = 0; scan < scans; ++scan)
    for (const int byte : {0xff, 0xda, 0, 8, 1, 1, 0, scan > 0 ? 1 : 0, scan > 0 ? 63 : 0, 0})
      file.push_back(std::uint8_t(byte));
  file.insert(file.end(), {0xff, 0xd9});
  return file;
}

// Arithmetic codes have no least length: hours of passes over millions of pixels would fit into a few kilobytes.
TEST(DecodeJpeg, RefusesMoreWorkThanArithmeticCodesOfThatLengthAreFor) {
  EXPECT_EQ(decode_jpeg(empty_scans(4000, 4000, 4), "a.jpg").width(), 4000);
  EXPECT_THAT(usage_error([&] { decode_jpeg(empty_scans(4000, 4000, 5), "a.jpg"); }),
              HasSubstr("'a.jpg': JPEG with more than 4 scans of 4000x4000 pixels, arithmetic-coded, at offset"));
  EXPECT_THAT(usage_error([&] { decode_jpeg(empty_scans(8193, 8192, 1), "a.jpg"); }),
              HasSubstr("truncated: image of 8192x8193 pixels, the file can hold 67108864 at most"));
  EXPECT_THAT(usage_error([&] { decode_jpeg(empty_scans(16, 16, 600), "a.jpg"); }), HasSubstr("more than 500 scans"));
}

TEST(DecodeJpeg, RefusesTwoComponents) {
  Bytes file = jpeg_file(filled(8, 8, {9, 9, 9}), {.subsampled = false});
  const auto frame = file.begin() + marker(file, kFrame);
  frame[3] = 14;
  frame[9] = 2;
  file.erase(frame + 16, frame + 19);
  const auto scan = file.begin() + marker(file, kScan);
  scan[3] = 10;
  scan[4] = 2;
  file.erase(scan + 9, scan + 11);
  EXPECT_EQ(usage_error([&] { decode_jpeg(file, "a.jpg"); }), "'a.jpg': JPEG with 2 components, 1, 3 or 4 expected");
}

}  // namespace
}  // namespace lockstep::data
