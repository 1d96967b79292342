#pragma once

// The body of the pixel kernels, compiled once per instruction set by pixel_kernel_*.cpp.

#include <cstring>

#include "lockstep/data/transforms/samples.h"

namespace lockstep::data {
namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// `Groups` groups of 16 samples; several, because their additions do not wait for each other.
template <int Groups>
void blend_groups(const Blend& blend, std::size_t offset, std::uint8_t* out) {
  Samples sums[Groups];
  for (Samples& sum : sums) sum = Samples::all(kHalf);
  const std::uint8_t* row = blend.rows + offset;
  for (int tap = 0; tap < blend.taps; ++tap, row += blend.stride) {
    for (int group = 0; group < Groups; ++group) sums[group].add_product(blend.weights[tap], row + 16 * group);
  }
  for (int group = 0; group < Groups; ++group) sums[group].store(out + offset + 16 * group);
}

void blend_one(const Blend& blend, std::size_t offset, std::uint8_t* out) {
  std::int32_t sum = kHalf;
  for (int tap = 0; tap < blend.taps; ++tap) sum += blend.weights[tap] * blend.rows[tap * blend.stride + offset];
  out[offset] = std::uint8_t(std::clamp(sum >> kWeightBits, 0, 255));
}

void blend(const Blend& blend, std::uint8_t* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 48 <= count; i += 48) blend_groups<3>(blend, i, out);
  for (; i + 16 <= count; i += 16) blend_groups<1>(blend, i, out);
  if (i < count && count >= 16) {
    blend_groups<1>(blend, count - 16, out);  // some samples a second time
  } else {
    for (; i < count; ++i) blend_one(blend, i, out);
  }
}

#if defined(__AVX2__)

// (x / 255 - mean) / std.
Floats standardized(Floats x, const Standard& standard) {
  const Floats scaled = x.over(255.0f, 1.0f / 255.0f);
  return scaled.minus(standard.mean).over(standard.std, standard.inverse_std);
}

// A picture as large as this leaves the cache before its batch is used: its numbers go past the cache.
constexpr std::size_t kStreamBytes = std::size_t(256) << 10;

template <int Channels, bool Stream>
void normalize_as(const NormalizePicture& picture, float* out) {
  const auto& [view, mirrored, standards] = picture;
  const PixelOrder& order = mirrored ? kMirroredOrder : kPlainOrder;
  const std::ptrdiff_t plane = std::ptrdiff_t(view.height) * view.width;
  for (int y = 0; y < view.height; ++y, out += view.width) {
    for (int x = 0; x < view.width; x += kNormalizeWidth) {
      x = std::min(x, view.width - kNormalizeWidth);  // the last group may repeat some pixels
      const int first = mirrored ? view.width - kNormalizeWidth - x : x;
      const std::uint8_t* pixels = view.row(y) + std::ptrdiff_t(first) * Channels;
      for (int c = 0; c < Channels; ++c) {
        const __m128i channel = Channels == 3 ? order.of_three(pixels, c) : order.of_one(pixels);
        const Floats numbers = standardized(Floats::of(channel), standards[c]);
        Stream ? numbers.stream(out + c * plane + x) : numbers.store(out + c * plane + x);
      }
    }
  }
  if (Stream) _mm_sfence();  // other threads see it all
}

// Rows that follow each other are one row: fewer groups that repeat pixels.
NormalizePicture in_one_row(NormalizePicture picture) {
  ImageView& view = picture.view;
  const std::int64_t pixels = std::int64_t(view.height) * view.width;
  const bool follow = view.row_bytes == std::ptrdiff_t(view.width) * view.channels;
  if (!follow || picture.mirrored || pixels > kMaxPixels) return picture;
  view.width = int(pixels);
  view.height = 1;
  return picture;
}

void normalize(const NormalizePicture& given, float* out) {
  const NormalizePicture picture = in_one_row(given);
  const ImageView& view = picture.view;
  const std::size_t bytes = std::size_t(view.height) * std::size_t(view.width) * sizeof(float);
  const bool aligned = reinterpret_cast<std::uintptr_t>(out) % 64 == 0 && view.width % kNormalizeWidth == 0;
  if (view.channels == 1) {
    normalize_as<1, false>(picture, out);
  } else if (aligned && 3 * bytes >= kStreamBytes) {
    normalize_as<3, true>(picture, out);
  } else {
    normalize_as<3, false>(picture, out);
  }
}

#endif

}  // namespace
}  // namespace lockstep::data
