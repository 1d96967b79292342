#pragma once

// Sixteen samples in 32 bits each, one type per instruction set. Only included by pixel_kernel.h.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "lockstep/data/transforms/pixel_kernels.h"

namespace lockstep::data {
namespace {  // each kernel file its own: the same names mean other code there

#if defined(__AVX512F__)

struct Samples {
  __m512i v;

  static Samples all(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
  void add_product(std::int32_t weight, const std::uint8_t* p) {
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    v = _mm512_add_epi32(v, _mm512_mullo_epi32(_mm512_set1_epi32(weight), wide));
  }
  void store(std::uint8_t* p) const {
    const __m512i whole = _mm512_max_epi32(_mm512_srai_epi32(v, kWeightBits), _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtusepi32_epi8(whole));
  }
};

#elif defined(__AVX2__)

struct Samples {
  __m256i low, high;

  static Samples all(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  void add_product(std::int32_t weight, const std::uint8_t* p) {
    const __m256i w = _mm256_set1_epi32(weight);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    low = _mm256_add_epi32(low, _mm256_mullo_epi32(w, _mm256_cvtepu8_epi32(bytes)));
    high = _mm256_add_epi32(high, _mm256_mullo_epi32(w, _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))));
  }
  void store(std::uint8_t* p) const {
    // The packs work within each half: 0-3 8-11 | 4-7 12-15 is put in order in between.
    const __m256i mixed = _mm256_packs_epi32(_mm256_srai_epi32(low, kWeightBits), _mm256_srai_epi32(high, kWeightBits));
    const __m256i sorted = _mm256_permute4x64_epi64(mixed, _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
};

#else

struct Samples {
  std::int32_t v[16];

  static Samples all(std::int32_t x) {
    Samples samples;
    std::fill_n(samples.v, 16, x);
    return samples;
  }
  void add_product(std::int32_t weight, const std::uint8_t* p) {
    for (int i = 0; i < 16; ++i) v[i] += weight * p[i];
  }
  void store(std::uint8_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = std::uint8_t(std::clamp(v[i] >> kWeightBits, 0, 255));
  }
};

#endif

#if defined(__AVX2__)

// Which bytes of 16 RGB pixels are the channel c of each: byte i of the result comes from byte
// 3 * pixel + c of 48, where `pixel` is i, or 15 - i for mirror images. 0x80 gives zero.
struct PixelOrder {
  std::uint8_t three[3][3][16];  // [channel][third of the 48][place]
  std::uint8_t one[16];

  __m128i of_three(const std::uint8_t* pixels, int c) const {
    const auto third = [&](int t) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels) + t);
      return _mm_shuffle_epi8(bytes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(three[c][t])));
    };
    return _mm_or_si128(_mm_or_si128(third(0), third(1)), third(2));
  }
  __m128i of_one(const std::uint8_t* pixels) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels));
    return _mm_shuffle_epi8(bytes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(one)));
  }
};

constexpr PixelOrder pixel_order(bool mirrored) {
  PixelOrder order{};
  for (int i = 0; i < 16; ++i) {
    const int pixel = mirrored ? 15 - i : i;
    order.one[i] = std::uint8_t(pixel);
    for (int c = 0; c < 3; ++c) {
      const int byte = 3 * pixel + c;
      for (int t = 0; t < 3; ++t) order.three[c][t][i] = byte / 16 == t ? std::uint8_t(byte % 16) : 0x80;
    }
  }
  return order;
}

constexpr PixelOrder kPlainOrder = pixel_order(false);
constexpr PixelOrder kMirroredOrder = pixel_order(true);

#endif

using Places = std::uint16_t;  // bit i: the place i of 16

// Sixteen numbers.
#if defined(__AVX512F__)

struct Floats {
  __m512 v;

  static Floats of(__m128i bytes) { return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))}; }
  Floats minus(float x) const { return {_mm512_sub_ps(v, _mm512_set1_ps(x))}; }
  /// The quotient by what this is the inverse of.
  Floats times(const Inverse& inverse) const {
    const __m512 rest = _mm512_mul_ps(v, _mm512_set1_ps(inverse.low));
    return {_mm512_fmadd_ps(v, _mm512_set1_ps(inverse.high), rest)};
  }
  Floats or_where_not(Places places, Floats other) const { return {_mm512_mask_mov_ps(other.v, places, v)}; }
  void store(float* out) const { _mm512_storeu_ps(out, v); }
  void stream(float* out) const { _mm512_stream_ps(out, v); }
};

#elif defined(__AVX2__)

struct Floats {
  __m256 low, high;

  static Floats of(__m128i bytes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  Floats minus(float x) const {
    return {_mm256_sub_ps(low, _mm256_set1_ps(x)), _mm256_sub_ps(high, _mm256_set1_ps(x))};
  }
  Floats times(const Inverse& inverse) const {
    const __m256 h = _mm256_set1_ps(inverse.high), l = _mm256_set1_ps(inverse.low);
    const auto half = [&](__m256 v) { return _mm256_fmadd_ps(v, h, _mm256_mul_ps(v, l)); };
    return {half(low), half(high)};
  }
  Floats or_where_not(Places places, Floats other) const {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const auto half = [&](__m256 mine, __m256 others, int eight) {
      const __m256i chosen = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(eight), bits), bits);
      return _mm256_blendv_ps(others, mine, _mm256_castsi256_ps(chosen));
    };
    return {half(low, other.low, places & 0xff), half(high, other.high, places >> 8)};
  }
  void store(float* out) const {
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
  }
  void stream(float* out) const {
    _mm256_stream_ps(out, low);
    _mm256_stream_ps(out + 8, high);
  }
};

#endif

}  // namespace
}  // namespace lockstep::data
