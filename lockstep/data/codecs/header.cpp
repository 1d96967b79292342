#include "lockstep/data/codecs/header.h"

#include <array>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"
#include "lockstep/data/codecs/decode.h"
#include "lockstep/data/codecs/jpeg.h"
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

// By the decoder's own parser: files that it reads although they are no proper JPEG have a size, too.
ImageHeader jpeg_header(std::span<const std::uint8_t> bytes, const std::string& name) {
  const std::optional<JpegFrame> frame = jpeg_frame(bytes, name);
  if (!frame) ends_early(name, "truncated: no JPEG frame header", bytes.size(), bytes.size());
  const int components = frame->components;
  return {frame->size, components == 1 ? "JPEG grey" : components == 4 ? "JPEG CMYK" : "JPEG colour"};
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
  ImageHeader header =
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
