#pragma once

// The inner loops over pixels that are worth an instruction set of their own; all builds give the same
// bytes. pixel_kernel_*.cpp are the builds, compiled from pixel_kernel.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/image.h"

namespace lockstep::data {

/// A weighted mean of `taps` rows of samples: weights in 1/2^kWeightBits, rows `stride` bytes apart.
struct Blend {
  const std::int32_t* weights;
  int taps;
  const std::uint8_t* rows;
  std::ptrdiff_t stride;
};

/// 8 bits of a sample, a sign, and a bit for sums above one (bicubic): what an int32 leaves for weights.
/// Pillow's number, which its rounding depends on.
inline constexpr int kWeightBits = 32 - 8 - 2;

/// 1 / divisor to twice the digits of a float, so that x / divisor is x * high + x * low.
struct Inverse {
  float high;
  float low;

  static constexpr Inverse of(float divisor) {
    const double whole = 1.0 / double(divisor);
    return {float(whole), float(whole - double(float(whole)))};
  }
};

/// What Normalize does to a channel, in numbers that need no division.
struct Standard {
  float mean;
  Inverse inverse_std;
};

/// A picture on its way into planes of numbers.
struct NormalizePicture {
  ImageView view;             ///< 1 or 3 channels, at least kNormalizeWidth wide
  bool mirrored;              ///< rows are read from the last pixel to the first
  const Standard* standards;  ///< per channel
};

/// What is seen of a picture from beyond its edges.
struct Framing {
  CropBox box;  ///< at least kNormalizeWidth wide
  std::array<std::uint8_t, 3> fill;
};

/// The least width that PixelKernels::normalize can do.
inline constexpr int kNormalizeWidth = 16;

struct PixelKernels {
  const char* name;
  bool (*supported)();
  /// out[i] = the rounded sum of weights[k] * rows[k][i], cut off to 0 … 255; i < count.
  void (*blend)(const Blend& blend, std::uint8_t* out, std::size_t count);
  /// Writes (pixel / 255 - mean) / std, one plane of rows for each channel. Both quotients are products with
  /// the inverse, rounded once: that is the rounded quotient for most divisors, not for all;
  /// whoever uses it compares all 256 results first. None (null) without vector instructions.
  void (*normalize)(const NormalizePicture& picture, float* out);
  /// The same of a box of the picture, which may be of any width; beyond it the box holds the fill colour.
  void (*normalize_framed)(const NormalizePicture& picture, const Framing& framing, float* out);
};

extern const PixelKernels kPixelKernelsAvx512;
extern const PixelKernels kPixelKernelsAvx2;
extern const PixelKernels kPixelKernelsScalar;

/// All builds, the fastest first; a machine may lack the first ones.
std::span<const PixelKernels* const> pixel_kernel_builds();

/// The fastest build for this machine.
const PixelKernels& pixel_kernels();

}  // namespace lockstep::data
