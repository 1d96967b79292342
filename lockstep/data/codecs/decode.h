#pragma once

// Image files to RGB pixels, as Pillow's `Image.open(file).convert("RGB")` gives them: what
// torchvision's ImageFolder reads. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// A longer file is refused before memory is taken for it: kMaxPixels pixels of a JPEG file at its best quality need
/// about half of this.
inline constexpr std::uint64_t kMaxImageFileBytes = 1 << 30;

enum class ImageFormat { jpeg, png };

/// What the first bytes say. UsageError naming the file: empty, or neither of the two.
ImageFormat image_format(std::span<const std::uint8_t> bytes, const std::string& name);

/// Decodes a JPEG or PNG file; which of the two, its first bytes say, not its name. `name` is
/// for messages. UsageError naming the file and what is wrong with it: empty, no image of
/// these formats, truncated, damaged (with the offset), too many pixels.
Image decode(std::span<const std::uint8_t> bytes, const std::string& name);

/// The bytes of the image file `path`. UsageError: cannot be read, longer than kMaxImageFileBytes, neither JPEG nor PNG
/// (seen before the rest is read).
std::vector<std::uint8_t> read_image_file(const std::string& path);

/// decode() of read_image_file().
Image read_image(const std::string& path);

}  // namespace lockstep::data
