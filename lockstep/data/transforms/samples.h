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

}  // namespace
}  // namespace lockstep::data
