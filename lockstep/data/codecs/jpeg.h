#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/deferred_image.h"

namespace lockstep::data {

struct JpegOptions {
  /// Decodes 1, 1/2, 1/4 or 1/8 of the width and height, rounded up: faster, with other pixels than Resize would
  /// give.
  int scale_denom = 1;
};

/// UsageError unless scale_denom is 1, 2, 4 or 8.
void check_scale(const JpegOptions& options);

/// What a JPEG file says about itself.
struct JpegFrame {
  Size size;
  int components = 0;  ///< 1 grey, 3 colour, 4 CMYK
};

/// Of a file of which `bytes` is the beginning, as decode_jpeg() will see it: what libjpeg passes over (bytes between
/// segments, a segment with a wrong length) is passed over. Nothing when `bytes` ends before the first scan. UsageError
/// naming the file when the header is damaged.
std::optional<JpegFrame> jpeg_frame(std::span<const std::uint8_t> bytes, const std::string& name);

/// Decodes JPEG (baseline, progressive, arithmetic; grey, YCbCr, RGB, CMYK, YCCK) to RGB with
/// libjpeg-turbo's accurate inverse transform and smooth chroma, Pillow's choice and the
/// library's default. CMYK is taken as inverted, as Adobe writes it and Pillow always reads it.
/// EXIF orientation is left alone.
///
/// UsageError with name and offset: damaged headers, an end before the last pixel or without
/// the end mark, more than kMaxPixels, or more pixels than a file of this length can code. Damage
/// inside of the compressed data that libjpeg can pass over gives wrong pixels and no error,
/// in Pillow too. UsageError also unless scale_denom is 1, 2, 4 or 8.
Image decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& name, const JpegOptions& options = {});

/// A JPEG file in memory. Only rows and columns that are asked for are computed, and bytes below the last of
/// them are not decoded; damage there is not seen, but a missing end mark is. Progressive files, and CMYK, are
/// decoded whole.
class EncodedJpeg : public DeferredImage {
 public:
  /// `size` as its header says (header.h).
  EncodedJpeg(std::vector<std::uint8_t> bytes, std::string name, Size size, const JpegOptions& options = {});

  Size size() const override { return size_; }
  int channels() const override { return 3; }
  ImagePart part(const CropBox& box) const override;

 private:
  std::vector<std::uint8_t> bytes_;
  std::string name_;
  Size size_;  // of the result
  JpegOptions options_;
};

}  // namespace lockstep::data
