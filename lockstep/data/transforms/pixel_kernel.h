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
  constexpr Inverse of255 = Inverse::of(255);
  return x.times(of255).minus(standard.mean).times(standard.inverse_std);
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

// Which of 16 places of a row hold pixels: the first is column `first` of `width`.
Places places_of(int first, int width, bool mirrored) {
  const int from = std::clamp(-first, 0, kNormalizeWidth), to = std::clamp(width - first, from, kNormalizeWidth);
  const unsigned plain = (1u << to) - (1u << from);
  const unsigned turned = (1u << (kNormalizeWidth - from)) - (1u << (kNormalizeWidth - to));
  return Places(mirrored ? turned : plain);
}

template <int Channels>
void normalize_framed_as(const NormalizePicture& picture, const Framing& framing, float* out) {
  constexpr std::ptrdiff_t kGroup = std::ptrdiff_t(kNormalizeWidth) * Channels;
  const auto& [view, mirrored, standards] = picture;
  const auto& [top, left, size] = framing.box;
  const PixelOrder& order = mirrored ? kMirroredOrder : kPlainOrder;
  const std::ptrdiff_t plane = std::ptrdiff_t(size.height) * size.width;
  const std::ptrdiff_t end = (view.height - 1) * view.row_bytes + std::ptrdiff_t(view.width) * Channels;
  Floats fill[Channels];
  for (int c = 0; c < Channels; ++c)
    fill[c] = standardized(Floats::of(_mm_set1_epi8(char(framing.fill[std::size_t(c)]))), standards[c]);
  for (int y = 0; y < size.height; ++y, out += size.width) {
    const int row = top + y;
    const int width = row >= 0 && row < view.height ? view.width : 0;  // of pixels in this row
    for (int x = 0; x < size.width; x += kNormalizeWidth) {
      x = std::min(x, size.width - kNormalizeWidth);  // the last group may repeat some pixels
      const int first = left + (mirrored ? size.width - kNormalizeWidth - x : x);
      const Places places = places_of(first, width, mirrored);
      const std::ptrdiff_t begin = row * view.row_bytes + std::ptrdiff_t(first) * Channels;
      // Beside a row are the pixels of its neighbours, which do no harm; but not beyond the picture.
      std::uint8_t copy[kGroup];
      const std::uint8_t* pixels = copy;
      if (places != 0 && (begin < 0 || begin + kGroup > end)) {
        for (std::ptrdiff_t i = 0; i < kGroup; ++i)
          copy[i] = begin + i >= 0 && begin + i < end ? view.pixels[begin + i] : 0;
      } else if (places != 0) {
        pixels = view.pixels + begin;
      }
      for (int c = 0; c < Channels; ++c) {
        Floats numbers = fill[c];
        if (places != 0) {
          const __m128i channel = Channels == 3 ? order.of_three(pixels, c) : order.of_one(pixels);
          numbers = standardized(Floats::of(channel), standards[c]).or_where_not(places, fill[c]);
        }
        numbers.store(out + c * plane + x);
      }
    }
  }
}

void normalize_framed(const NormalizePicture& picture, const Framing& framing, float* out) {
  picture.view.channels == 1 ? normalize_framed_as<1>(picture, framing, out)
                             : normalize_framed_as<3>(picture, framing, out);
}

#endif

}  // namespace
}  // namespace lockstep::data
