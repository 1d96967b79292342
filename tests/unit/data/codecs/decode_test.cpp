#include "lockstep/data/codecs/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_files.h"
#include "tests/support/pixels.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::Bytes;
using testing::jpeg_file;
using testing::largest_difference;
using testing::picture;
using testing::png_file;
using testing::same_pixels;
using testing::ScratchFolder;
using ::testing::StartsWith;
using testing::usage_error;

std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(Decode, GoesByTheFirstBytesNotByTheName) {
  const Image original = picture(16, 16);
  EXPECT_TRUE(same_pixels(decode(png_file(original, false), "a.jpg"), original));
  EXPECT_LE(largest_difference(decode(jpeg_file(original, {.quality = 100, .subsampled = false}), "a.png"), original),
            4);
}

TEST(Decode, RefusesWhatIsNoImage) {
  EXPECT_EQ(usage_error([] { decode({}, "a.jpg"); }), "'a.jpg': empty file, a JPEG or PNG image expected");
  const Bytes almost = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a};
  EXPECT_EQ(usage_error([&] { decode(almost, "a.png"); }), "'a.png': neither JPEG nor PNG by its first bytes");
  const Bytes short_jpeg = {0xff, 0xd8};
  EXPECT_EQ(usage_error([&] { decode(short_jpeg, "a.jpg"); }), "'a.jpg': neither JPEG nor PNG by its first bytes");
}

TEST(ReadImage, ReadsTheFile) {
  const ScratchFolder folder;
  const Image original = picture(5, 7);
  EXPECT_TRUE(same_pixels(read_image(folder.write("blüte.png", text(png_file(original, false)))), original));
  const std::string gone = folder.file("gone.jpg");
  EXPECT_EQ(usage_error([&] { read_image(gone); }), "cannot open '" + gone + "': No such file or directory");
  EXPECT_EQ(usage_error([&] { read_image(folder.path()); }), "cannot read '" + folder.path() + "': not a regular file");
  const std::string empty = folder.write("empty.jpg", "");
  EXPECT_THAT(usage_error([&] { read_image(empty); }), StartsWith("'" + empty + "': empty file"));
}

}  // namespace
}  // namespace lockstep::data
