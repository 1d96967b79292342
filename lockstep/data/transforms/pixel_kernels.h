#pragma once

// The inner loops over pixels that are worth an instruction set of their own. Integers only: all
// builds give the same bytes. pixel_kernel_*.cpp are the builds, compiled from pixel_kernel.h.

#include <cstddef>
#include <cstdint>
#include <span>

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

struct PixelKernels {
  const char* name;
  bool (*supported)();
  /// out[i] = the rounded sum of weights[k] * rows[k][i], cut off to 0 … 255; i < count.
  void (*blend)(const Blend& blend, std::uint8_t* out, std::size_t count);
};

extern const PixelKernels kPixelKernelsAvx512;
extern const PixelKernels kPixelKernelsAvx2;
extern const PixelKernels kPixelKernelsScalar;

/// All builds, the fastest first; a machine may lack the first ones.
std::span<const PixelKernels* const> pixel_kernel_builds();

/// The fastest build for this machine.
const PixelKernels& pixel_kernels();

}  // namespace lockstep::data
