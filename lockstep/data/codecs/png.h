#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// Decodes PNG (1 to 16 bits; grey, RGB, palette, with alpha or not; interlaced or not) to RGB
/// as Pillow does: alpha and transparent colours are dropped, not blended; 16-bit colour keeps
/// its upper byte, but 16-bit grey without alpha is cut off at 255; palette entries that the
/// file does not define are black; gamma and colour profiles are not applied.
///
/// UsageError with name and offset: damaged or truncated data, more than kMaxPixels, or more
/// pixels than a file of this length can hold. Stricter than Pillow: a wrong checksum of the
/// image data, missing rows, and a palette image without palette are errors.
Image decode_png(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace lockstep::data
