#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/random.h"
#include "lockstep/data/codecs/header.h"
#include "lockstep/data/codecs/jpeg.h"
#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::jpeg_file;
using testing::picture;
using testing::same_pixels;
using ::testing::StartsWith;
using testing::usage_error;

EncodedJpeg encoded(const Bytes& file, const JpegOptions& options = {}) {
  return {file, "a.jpg", image_header(file, "a.jpg").size, options};
}

CropBox random_box(Size whole, base::RandomStream& random) {
  const int height = 1 + int(random.below(std::uint32_t(whole.height)));
  const int width = 1 + int(random.below(std::uint32_t(whole.width)));
  return {int(random.below(std::uint32_t(whole.height - height + 1))),
          int(random.below(std::uint32_t(whole.width - width + 1))),
          {height, width}};
}

struct Kind {
  const char* name;
  testing::JpegOptions options;
  int channels = 3;
  bool left_out = true;  // something of it is
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class EveryKind : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryKind, APartHasThePixelsOfTheWhole) {
  base::RandomStream random(4, 5, 6);
  for (const Size size : {Size{131, 97}, {128, 160}, {64, 333}, {250, 67}}) {
    const Bytes file = jpeg_file(picture(size.height, size.width, GetParam().channels), GetParam().options);
    const Image whole = decode_jpeg(file, "a.jpg");
    const EncodedJpeg later = encoded(file);
    ASSERT_EQ(later.size(), size);
    std::size_t least = whole.bytes();
    for (int i = 0; i < 300; ++i) {
      const CropBox box = random_box(size, random);
      const ImagePart part = later.part(box);
      const auto [height, width] = box.size;
      const ImageView seen = part.image.view().part(box.top - part.top, box.left - part.left, height, width);
      const ImageView expected = whole.view().part(box.top, box.left, height, width);
      ASSERT_TRUE(same_pixels(copy_of(seen), copy_of(expected)))
          << to_string(box.size) << " from row " << box.top << ", column " << box.left << " of " << to_string(size);
      least = std::min(least, part.image.bytes());
    }
    EXPECT_EQ(least < whole.bytes() / 2, GetParam().left_out);
  }
}

INSTANTIATE_TEST_SUITE_P(JpegPart, EveryKind,
                         ::testing::Values(Kind{"chroma_whole", {.across = 1, .down = 1}},
                                           Kind{"chroma_half_across", {.down = 1}},
                                           Kind{"chroma_half_down", {.across = 1}}, Kind{"chroma_quarter", {}},
                                           Kind{"chroma_quarter_across", {.across = 4, .down = 1}},
                                           Kind{"restarts", {.restart_rows = 1}}, Kind{"coarse", {.quality = 10}},
                                           Kind{"grey", {}, 1}, Kind{"progressive", {.progressive = true}, 3, false},
                                           Kind{"cmyk", {.cmyk = true}, 4, false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(JpegPart, TruncationAtEveryByteIsAnErrorWhateverIsAskedFor) {
  const Bytes file = jpeg_file(picture(80, 80), {.quality = 30});
  for (std::size_t length = 200; length < file.size(); ++length) {
    const Bytes part(file.begin(), file.begin() + std::ptrdiff_t(length));
    EXPECT_THAT(usage_error([&] {
                  encoded(part).part({8, 8, {8, 8}});
                }),
                AllOf(StartsWith("'a.jpg': truncated"), HasSubstr(" of " + std::to_string(length))))
        << length;
  }
}

TEST(JpegPart, DamageAtAnyByteIsPixelsOrAClearError) {
  const Bytes file = jpeg_file(picture(80, 96), {.quality = 30});
  int decoded = 0, refused = 0;
  for (std::size_t place = 2; place < file.size(); ++place) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Bytes damaged = file;
      damaged[place] = std::uint8_t(damaged[place] ^ flip);
      try {
        const Size size = image_header(damaged, "a.jpg").size;
        if (size.height < 60 || size.width < 60) continue;
        encoded(damaged).part({30, 40, {20, 20}});
        ++decoded;
      } catch (const UsageError& error) {
        ++refused;
        EXPECT_THAT(error.what(), StartsWith("'a.jpg': "));
      }
    }
  }
  EXPECT_GT(decoded, 50);
  EXPECT_GT(refused, 50);
}

TEST(JpegPart, RefusesAFileOfTwoSizes) {
  const Bytes file = jpeg_file(picture(70, 80));
  const EncodedJpeg other(file, "a.jpg", {70, 90});
  EXPECT_THAT(usage_error([&] { other.part({0, 0, {70, 90}}); }), StartsWith("'a.jpg': damaged JPEG (two sizes)"));
}

TEST(JpegScale, DecodesAFractionRoundedUp) {
  const Bytes file = jpeg_file(picture(70, 81));
  for (const auto& [scale, size] : {std::pair(1, Size{70, 81}), {2, {35, 41}}, {4, {18, 21}}, {8, {9, 11}}}) {
    EXPECT_EQ(decode_jpeg(file, "a.jpg", {.scale_denom = scale}).size(), size);
    const EncodedJpeg later = encoded(file, {.scale_denom = scale});
    EXPECT_EQ(later.size(), size);
    if (scale == 1) continue;
    EXPECT_EQ(later.part({0, 0, {1, 1}}).image.size(), size) << "nothing is left out";
  }
  EXPECT_EQ(usage_error([&] { decode_jpeg(file, "a.jpg", {.scale_denom = 3}); }),
            "JPEG: scale_denom 3, 1, 2, 4 or 8 expected");
}

}  // namespace
}  // namespace lockstep::data
