#pragma once

// The last pass: crop, flip, ToTensor, Normalize, layout and type in one, straight into the batch.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/picture.h"
#include "lockstep/data/transforms/pixel_kernels.h"
#include "lockstep/data/transforms/placement.h"

namespace lockstep::data {

enum class PixelLayout {
  planes,         ///< [channels, height, width], torch's contiguous
  channels_last,  ///< [height, width, channels]
};

enum class PixelType {
  float32,
  bfloat16,  ///< the float32 value, rounded to the nearest, half to even
  uint8,     ///< the pixel as it is: NormalizePixels does the rest (normalize_pixels.h)
};

/// The numbers of one picture, in somebody's memory.
struct Slot {
  void* data = nullptr;
  Size size;
  int channels = 0;
  PixelLayout layout = PixelLayout::planes;
  PixelType type = PixelType::float32;

  /// What it takes.
  std::size_t bytes() const;
  /// Writes one number, of uint8 its whole part; must be inside.
  void set(int channel, int row, int column, float value) const;
};

struct NormalizeOptions {
  std::vector<double> mean = {0};  ///< per channel; one for all of them
  std::vector<double> std = {1};   ///< per channel; one for all of them. Both are without effect on uint8
  PixelLayout layout = PixelLayout::planes;
  PixelType type = PixelType::float32;
};

/// Writes (pixel / 255 − mean) / std in float32 arithmetic, one operation after the other: the bits of
/// torchvision's ToTensor and Normalize. The defaults are ToTensor alone. Thread-safe.
class Normalize {
 public:
  /// UsageError unless mean and std have one or three numbers each, std none that is zero.
  explicit Normalize(const NormalizeOptions& options = {});

  /// The place at `data` for a picture of this shape.
  Slot slot(void* data, Size size, int channels) const { return {data, size, channels, layout_, type_}; }

  /// Writes the picture to the slot, which has its size and channels.
  void write(const Picture& picture, const Slot& slot) const;

  /// The same of what is seen of a picture, before it is one: what `placement` says of `pixels`.
  void write(const ImageView& pixels, const Placement& placement, const Slot& slot) const;

  /// What becomes of a pixel of a channel, 0 to 2, as float32.
  float number(int channel, int pixel) const { return floats_[std::size_t(channel)][std::size_t(pixel)]; }

 private:
  template <class T>
  using Table = std::array<std::array<T, 256>, 3>;  // [channel][pixel]

  bool kernel_is_exact() const;

  PixelLayout layout_;
  PixelType type_;
  std::array<Standard, 3> standards_;
  bool by_kernel_ = false;  // instead of by table, where the layout and width allow it
  Table<float> floats_;
  Table<std::uint16_t> halves_;  // bfloat16
  Table<std::uint8_t> pixels_;   // each itself
};

}  // namespace lockstep::data
