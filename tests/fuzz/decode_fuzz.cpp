// Any bytes behind the first four are a picture or a UsageError of one line. A JPEG picture has the size that its
// header says, and any part of it, drawn from the first four bytes, has the pixels of the whole.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/codecs/header.h"
#include "lockstep/data/codecs/jpeg.h"
#include "tests/fuzz/accepted.h"

namespace {

using namespace lockstep::data;
using lockstep::testing::accepted;

constexpr std::int64_t kMostPixels = 1 << 20;  // of what is decoded twice: minutes go by otherwise

struct Stretch {
  int begin;
  int length;
};

// One inside of `length`, by two bytes.
Stretch stretch(int length, const std::uint8_t* choice) {
  const int begin = length * choice[0] / 256;
  return {begin, std::max(1, (length - begin) * (choice[1] + 1) / 256)};
}

void check(bool holds) {
  if (!holds) std::abort();
}

void compare_part(std::span<const std::uint8_t> bytes, const Image& whole, const std::uint8_t* choice) {
  check(accepted([&] {
    const Size size = image_header(bytes, "fuzz").size;
    check(size == whole.size());
    const auto [top, height] = stretch(size.height, choice);
    const auto [left, width] = stretch(size.width, choice + 2);
    const EncodedJpeg later({bytes.begin(), bytes.end()}, "fuzz", size);
    const ImagePart part = later.part({top, left, {height, width}});
    for (int y = top; y < top + height; ++y) {
      const std::uint8_t* expected = whole.row(y) + 3 * left;
      check(std::equal(expected, expected + 3 * width, part.image.row(y - part.top) + 3 * (left - part.left)));
    }
  }));
}

// What cannot be decoded whole: a part, where there is one, and a refusal are both right.
void look_at_part(std::span<const std::uint8_t> bytes, const std::uint8_t* choice) {
  accepted([&] {
    const Size size = image_header(bytes, "fuzz").size;
    if (std::int64_t(size.height) * size.width > kMostPixels) return;
    const auto [top, height] = stretch(size.height, choice);
    const auto [left, width] = stretch(size.width, choice + 2);
    EncodedJpeg({bytes.begin(), bytes.end()}, "fuzz", size).part({top, left, {height, width}});
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kChoice = 4;
  if (size < kChoice) return 0;
  const std::span<const std::uint8_t> bytes(data + kChoice, size - kChoice);
  std::optional<Image> whole;
  accepted([&] { whole = decode(bytes, "fuzz"); });
  if (whole) check(whole->channels() == 3 && whole->height() >= 1 && whole->width() >= 1);
  accepted([&] { image_header(bytes, "fuzz"); });
  bool jpeg = false;
  accepted([&] { jpeg = image_format(bytes, "fuzz") == ImageFormat::jpeg; });
  if (!jpeg) return 0;
  if (!whole) {
    look_at_part(bytes, data);
  } else if (std::int64_t(whole->height()) * whole->width() <= kMostPixels) {
    compare_part(bytes, *whole, data);
  }
  return 0;
}
