#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// Decodes JPEG (baseline, progressive, arithmetic; grey, YCbCr, RGB, CMYK, YCCK) to RGB with
/// libjpeg-turbo's accurate inverse transform and smooth chroma, Pillow's choice and the
/// library's default. CMYK is taken as inverted, as Adobe writes it and Pillow always reads it.
/// EXIF orientation is left alone.
///
/// UsageError with name and offset: damaged headers, an end before the last pixel or without
/// the end mark, more than kMaxPixels, or more pixels than a file of this length can code. Damage
/// inside of the compressed data that libjpeg can pass over gives wrong pixels and no error,
/// in Pillow too.
Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace lockstep::data
