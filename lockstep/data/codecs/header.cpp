#include "lockstep/data/codecs/header.h"

#include <array>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kMostHeader = 16 << 20;

// More bytes may hold the header; what every other error says stays true whatever follows.
class HeaderEndsEarly : public UsageError {
 public:
  using UsageError::UsageError;
};

[[noreturn]] void ends_early(const std::string& name, const std::string& what, std::size_t offset, std::size_t size) {
  try {
    refuse(name, what, offset, size);
  } catch (const UsageError& error) {
    throw HeaderEndsEarly(error.what());
  }
}

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

bool begins_frame(std::uint8_t marker) {  // C4, C8 and CC are tables
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

bool stands_alone(std::uint8_t marker) { return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8); }

// Goes from marker to marker until the one that begins the frame: length, precision, height, width, components.
ImageHeader jpeg_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  constexpr std::size_t kFrame = 8;
  std::size_t at = 2;
  const auto truncated = [&] { ends_early(name, "truncated: no JPEG frame header", at, bytes.size()); };
  while (at + 2 + kFrame <= bytes.size()) {
    if (bytes[at] != 0xff) refuse(name, "damaged JPEG (no marker)", at, bytes.size());
    const std::uint8_t marker = bytes[at + 1];
    const auto segment = bytes.subspan(at + 2);
    if (begins_frame(marker)) {
      const int components = segment[7];
      const Size size = {int(big_endian(segment.subspan(3, 2))), int(big_endian(segment.subspan(5, 2)))};
      return {size, components == 1 ? "JPEG grey" : components == 4 ? "JPEG CMYK" : "JPEG colour"};
    }
    at += marker == 0xff ? 1 : stands_alone(marker) ? 2 : 2 + big_endian(segment.first(2));
  }
  truncated();
  return {};
}

ImageHeader png_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  constexpr std::size_t kHeaderEnd = 26;
  constexpr std::array<const char*, 7> kColors = {"grey", "?", "RGB", "palette", "grey with alpha", "?", "RGBA"};
  if (bytes.size() < kHeaderEnd) ends_early(name, "truncated: no PNG header", bytes.size(), bytes.size());
  const std::uint32_t width = big_endian(bytes.subspan(16, 4)), height = big_endian(bytes.subspan(20, 4));
  constexpr std::uint32_t kMost = std::numeric_limits<int>::max();
  if (width > kMost || height > kMost) refuse(name, "damaged PNG (impossible size)", 16, bytes.size());
  const int depth = bytes[24], color = bytes[25];
  std::string kind = std::string("PNG ") + (color < int(kColors.size()) ? kColors[std::size_t(color)] : "?");
  if (depth != 8) kind += ", " + std::to_string(depth) + (depth == 1 ? " bit" : " bits");
  return {{int(height), int(width)}, kind};
}

}  // namespace

ImageHeader image_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  const ImageHeader header =
      image_format(bytes, name) == ImageFormat::jpeg ? jpeg_header(bytes, name) : png_header(bytes, name);
  check_size(name, header.size.width, header.size.height, std::numeric_limits<std::int64_t>::max());
  return header;
}

// Each round looks at twice as many bytes, from the first on: together no more than twice as many as the last one.
ImageHeader read_image_header(const std::string& path) {
  const std::unique_ptr<ByteSource> file = open_bytes(path);
  std::vector<std::uint8_t> bytes;
  for (std::size_t wanted = 64 << 10;; wanted *= 2) {
    const std::size_t before = bytes.size();
    bytes.resize(wanted);
    bytes.resize(before + file->read(bytes.data() + before, wanted - before));
    try {
      return image_header(bytes, path);
    } catch (const HeaderEndsEarly&) {
      if (bytes.size() < wanted) throw;
      if (wanted >= kMostHeader) {
        throw UsageError("'" + path + "': no image header in the first " + std::to_string(wanted) + " bytes");
      }
    }
  }
}

}  // namespace lockstep::data
