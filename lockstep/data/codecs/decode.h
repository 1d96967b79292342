#pragma once

// Image files to RGB pixels, as Pillow's `Image.open(file).convert("RGB")` gives them: what
// torchvision's ImageFolder reads. Pure functions, thread-safe.

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// A file that declares more pixels is refused before memory is taken for them: Pillow's
/// default limit (of DecompressionBombError).
inline constexpr std::int64_t kMaxPixels = 178'956'970;

enum class ImageFormat { jpeg, png };

/// What the first bytes say. UsageError naming the file: empty, or neither of the two.
ImageFormat image_format(std::span<const std::uint8_t> bytes, const std::string& name);

/// Decodes a JPEG or PNG file; which of the two, its first bytes say, not its name. `name` is
/// for messages. UsageError naming the file and what is wrong with it: empty, no image of
/// these formats, truncated, damaged (with the offset), too many pixels.
Image decode(std::span<const std::uint8_t> bytes, const std::string& name);

/// The same for the file `path`. UsageError also when it cannot be read.
Image read_image(const std::string& path);

}  // namespace lockstep::data
