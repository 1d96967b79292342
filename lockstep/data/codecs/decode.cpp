#include "lockstep/data/codecs/decode.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/data/codecs/damage.h"
#include "lockstep/data/codecs/jpeg.h"
#include "lockstep/data/codecs/png.h"
#include "lockstep/data/decode_time.h"
#include "lockstep/data/readers/byte_source.h"

namespace lockstep::data {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegMagic = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngMagic = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

template <std::size_t N>
bool begins_with(std::span<const std::uint8_t> bytes, const std::array<std::uint8_t, N>& magic) {
  return bytes.size() >= N && std::equal(magic.begin(), magic.end(), bytes.begin());
}

}  // namespace

void refuse(const std::string& name, const std::string& what, std::size_t offset, std::size_t size) {
  throw UsageError("'" + name + "': " + what + " at offset " + std::to_string(offset) + " of " + std::to_string(size));
}

void check_size(const std::string& name, std::int64_t width, std::int64_t height, std::int64_t room) {
  const std::string size = std::to_string(width) + "x" + std::to_string(height) + " pixels";
  if (width < 1 || height < 1) throw UsageError("'" + name + "': image of " + size);
  if (width > kMaxPixels / height) {
    throw UsageError("'" + name + "': image of " + size + ", at most " + std::to_string(kMaxPixels) + " are read");
  }
  if (width * height > room) {
    throw UsageError("'" + name + "': truncated: image of " + size + ", the file can hold " + std::to_string(room) +
                     " at most");
  }
}

ImageFormat image_format(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.empty()) throw UsageError("'" + name + "': empty file, a JPEG or PNG image expected");
  if (begins_with(bytes, kJpegMagic)) return ImageFormat::jpeg;
  if (begins_with(bytes, kPngMagic)) return ImageFormat::png;
  throw UsageError("'" + name + "': neither JPEG nor PNG by its first bytes");
}

Image decode(std::span<const std::uint8_t> bytes, const std::string& name) {
  return image_format(bytes, name) == ImageFormat::jpeg ? decode_jpeg(bytes, name) : decode_png(bytes, name);
}

std::vector<std::uint8_t> read_image_file(const std::string& path) {
  return read_bytes(path, kMaxImageFileBytes,
                    [&](std::span<const std::uint8_t> beginning) { image_format(beginning, path); });
}

Image read_image(const std::string& path) {
  const DecodeTime counted;
  return decode(read_image_file(path), path);
}

}  // namespace lockstep::data
