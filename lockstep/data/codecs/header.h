#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// What an image file says about itself before its pixels.
struct ImageHeader {
  Size size;
  std::string kind;  ///< "JPEG grey", "JPEG colour", "JPEG CMYK", "PNG RGB", "PNG palette", "PNG grey, 16 bits", ...
};

/// Of a JPEG or PNG file, of which `bytes` is the beginning. UsageError naming the file (`name`): neither of the
/// two, no pixels or more than kMaxPixels, or no header within `bytes`.
ImageHeader image_header(std::span<const std::uint8_t> bytes, const std::string& name);

/// The same for the file `path`, of which 64 KiB are read, and more only as long as the header may still come: twice
/// as much each time. UsageError also when it does not stand in the first 16 MiB, or the file cannot be read.
ImageHeader read_image_header(const std::string& path);

}  // namespace lockstep::data
