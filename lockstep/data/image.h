#pragma once

// A picture in memory: 8-bit pixels, rows from top to bottom, the channels of a pixel side by side (HWC).

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/data/pixel_memory.h"

namespace lockstep::data {

struct Size {
  int height = 0;
  int width = 0;

  bool operator==(const Size&) const = default;
};

/// No picture has more: a file that declares more is refused, and so is a transform that would make more, before memory
/// is taken for them. Pillow's default limit (of DecompressionBombError).
inline constexpr std::int64_t kMaxPixels = 178'956'970;

/// A rectangle of a picture, in whole pixels.
struct CropBox {
  int top = 0;
  int left = 0;
  Size size;

  bool operator==(const CropBox&) const = default;
};

/// "28x28", height before width.
std::string to_string(Size size);

/// UsageError naming both sizes when a picture of `to`, which `what` makes of one of `from`, has more than kMaxPixels.
void require_possible(const char* what, Size from, Size to);

/// Somebody else's pixels, or a rectangle of them. Valid as long as their owner.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;              ///< 1 grey, 3 RGB
  std::ptrdiff_t row_bytes = 0;  ///< from one row to the next

  const std::uint8_t* row(int y) const { return pixels + y * row_bytes; }
  Size size() const { return {height, width}; }

  /// The rectangle of `rows` x `columns` pixels from (top, left) on; it must lie inside.
  ImageView part(int top, int left, int rows, int columns) const {
    return {row(top) + std::ptrdiff_t(left) * channels, rows, columns, channels, row_bytes};
  }
};

/// Pixels of its own, rows without gaps. Moves; copies only when asked, by copy_of().
class Image {
 public:
  Image() = default;

  /// The pixels are not initialised: untouched memory costs nothing until it is written.
  Image(Size size, int channels) : Image(size.height, size.width, channels) {}
  Image(int height, int width, int channels)
      : height_(height), width_(width), channels_(channels), pixels_(pixel_memory(std::size_t(height) * row_bytes())) {}

  Size size() const { return {height_, width_}; }
  int height() const { return height_; }
  int width() const { return width_; }
  int channels() const { return channels_; }
  std::size_t row_bytes() const { return std::size_t(width_) * std::size_t(channels_); }
  std::size_t bytes() const { return std::size_t(height_) * row_bytes(); }

  std::uint8_t* row(int y) { return pixels_.get() + std::size_t(y) * row_bytes(); }
  const std::uint8_t* row(int y) const { return pixels_.get() + std::size_t(y) * row_bytes(); }

  ImageView view() const { return {pixels_.get(), height_, width_, channels_, std::ptrdiff_t(row_bytes())}; }

 private:
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  PixelMemory pixels_;
};

/// An image with the pixels of `view`.
Image copy_of(const ImageView& view);

}  // namespace lockstep::data
