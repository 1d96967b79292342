#include "lockstep/data/codecs/header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/image_files.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::jpeg_file;
using testing::picture;
using testing::png_file;
using testing::usage_error;

void expect_header(const Bytes& file, Size size, const std::string& kind) {
  const ImageHeader header = image_header(file, "name");
  EXPECT_EQ(header.size, size) << kind;
  EXPECT_EQ(header.kind, kind);
}

TEST(ImageHeader, OfJpegFiles) {
  expect_header(jpeg_file(picture(20, 30)), {20, 30}, "JPEG colour");
  expect_header(jpeg_file(picture(20, 30), {.progressive = true}), {20, 30}, "JPEG colour");
  expect_header(jpeg_file(picture(7, 300, 1)), {7, 300}, "JPEG grey");
  expect_header(jpeg_file(picture(7, 5, 4), {.cmyk = true}), {7, 5}, "JPEG CMYK");
}

TEST(ImageHeader, OfJpegFilesThatOnlyTheDecoderUnderstands) {
  for (const auto& [how, file] : testing::untidy_jpegs(jpeg_file(picture(20, 30)))) {
    SCOPED_TRACE(how);
    expect_header(file, {20, 30}, "JPEG colour");
  }
}

TEST(ImageHeader, OfPngFiles) {
  const auto header = [](std::uint8_t depth, std::uint8_t color) {
    return png_file({.width = 300, .height = 2, .depth = depth, .color = color}, {});
  };
  expect_header(header(8, 2), {2, 300}, "PNG RGB");
  expect_header(header(16, 0), {2, 300}, "PNG grey, 16 bits");
  expect_header(header(1, 3), {2, 300}, "PNG palette, 1 bit");
  expect_header(header(8, 4), {2, 300}, "PNG grey with alpha");
  expect_header(header(8, 6), {2, 300}, "PNG RGBA");
}

TEST(ImageHeader, StandsWithinTheBeginning) {
  const Bytes jpeg = jpeg_file(picture(20, 30)), png = png_file(picture(20, 30), false);
  EXPECT_THAT(usage_error([&] { image_header(std::span(jpeg).first(40), "a.jpg"); }),
              HasSubstr("'a.jpg': truncated: no JPEG frame header at offset 40 of 40"));
  EXPECT_THAT(usage_error([&] { image_header(std::span(png).first(20), "a.png"); }),
              HasSubstr("'a.png': truncated: no PNG header at offset 20 of 20"));
}

TEST(ImageHeader, IsRefusedWhenDamaged) {
  Bytes jpeg = jpeg_file(picture(20, 30));
  jpeg[22] = 0xff;  // the length of the first table
  jpeg[23] = 0xff;
  EXPECT_THAT(usage_error([&] { image_header(jpeg, "a.jpg"); }), HasSubstr("'a.jpg': damaged JPEG ("));
  EXPECT_THAT(usage_error([] { image_header(png_file({.width = 1u << 31, .height = 1}, {}), "a.png"); }),
              HasSubstr("impossible size"));
  EXPECT_THAT(usage_error([] { image_header(png_file({.width = 100'000, .height = 100'000}, {}), "a.png"); }),
              HasSubstr("image of 100000x100000 pixels, at most"));
  EXPECT_THAT(usage_error([] { image_header({}, "a.png"); }), HasSubstr("empty file"));
}

TEST(ImageHeader, IsFoundBehindLongComments) {
  const Bytes jpeg = jpeg_file(picture(20, 30));
  Bytes file(jpeg.begin(), jpeg.begin() + 2);
  for (int i = 0; i < 3; ++i) {
    file.insert(file.end(), {0xff, 0xfe, 0xff, 0xff});
    file.insert(file.end(), 0xffff - 2, 'x');
  }
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  const testing::ScratchFolder folder;
  const std::string path = folder.write("a.jpg", {file.begin(), file.end()});
  EXPECT_EQ(read_image_header(path).size, (Size{20, 30}));
}

// A file with holes, of more bytes than any memory holds.
std::string huge_file(const testing::ScratchFolder& folder, const std::string& name, const Bytes& begin) {
  std::string path = folder.write(name, {begin.begin(), begin.end()});
  std::filesystem::resize_file(path, std::uintmax_t(1) << 40);
  return path;
}

TEST(ReadImageHeader, ReadsNoMoreOfWhatIsNoPicture) {
  const testing::ScratchFolder folder;
  EXPECT_THAT(usage_error([&] { read_image_header(huge_file(folder, "zeros.jpg", {})); }),
              HasSubstr("zeros.jpg': neither JPEG nor PNG by its first bytes"));
  const Bytes impossible = png_file({.width = 1u << 31, .height = 1}, {});
  EXPECT_THAT(usage_error([&] { read_image_header(huge_file(folder, "a.png", impossible)); }),
              HasSubstr("impossible size"));
  EXPECT_EQ(read_image_header(huge_file(folder, "b.png", png_file({.width = 3, .height = 2}, {}))).size, (Size{2, 3}));
}

TEST(ReadImageHeader, LooksForItInTheFirst16MiBOnly) {
  const testing::ScratchFolder folder;
  const std::string path = huge_file(folder, "a.jpg", [] {
    Bytes bytes = {0xff, 0xd8};
    for (int i = 0; i < 400; ++i) {
      bytes.insert(bytes.end(), {0xff, 0xfe, 0xff, 0xff});
      bytes.insert(bytes.end(), 0xffff - 2, 'x');
    }
    return bytes;
  }());
  EXPECT_THAT(usage_error([&] { read_image_header(path); }),
              HasSubstr("a.jpg': no image header in the first 16777216 bytes"));
}

}  // namespace
}  // namespace lockstep::data
