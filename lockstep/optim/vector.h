#pragma once

// The few vector operations of the update kernel, one type per instruction set. Each is one
// IEEE operation per lane: a program written with them gives the same bits in all three.
// bfloat16 is the upper half of a float32; narrow() rounds to nearest even and makes every NaN
// the one of c10::BFloat16. min() and max() of a NaN are a NaN, sign() of one is 0, as torch's.
// Only included by the kernel_*.cpp files, which are compiled for their instruction set.

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace lockstep::optim {
namespace {  // each kernel file its own: the same names mean other code there

using Bf16 = std::uint16_t;
[[maybe_unused]] constexpr int kHalfUlp = 0x7fff;  // half a unit in the last place of bfloat16, less one
[[maybe_unused]] constexpr int kNaN = 0x7fc0;

#if defined(__AVX512F__)

struct Vector {
  static constexpr std::size_t width = 16;
  __m512 v;
  static Vector load(const float* p) { return {_mm512_load_ps(p)}; }
  static Vector load(const Bf16* p) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
  static Vector all(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_store_ps(p, v); }
  void stream(float* p) const { _mm512_stream_ps(p, v); }
  void store(Bf16* p) const { _mm256_store_si256(reinterpret_cast<__m256i*>(p), narrow()); }
  void stream(Bf16* p) const { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrow()); }

 private:
  __m256i narrow() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(kHalfUlp)), odd);
    const __m512i upper = _mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                                                _mm512_set1_epi32(kNaN));
    return _mm512_cvtepi32_epi16(upper);
  }
};
// Sums of squares in float64, which are exact before they are added up.
struct Squares {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  void add(Vector x) {
    const __m512 upper = _mm512_shuffle_f32x4(x.v, x.v, 0x4e);
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
    const __m512d b = _mm512_cvtps_pd(_mm512_castps512_ps256(upper));
    low = _mm512_add_pd(low, _mm512_mul_pd(a, a));
    high = _mm512_add_pd(high, _mm512_mul_pd(b, b));
  }
  void store(double* p) const {
    _mm512_storeu_pd(p, low);
    _mm512_storeu_pd(p + 8, high);
  }
};
inline Vector operator+(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vector sqrt(Vector a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vector min(Vector a, Vector b) {
  return {_mm512_mask_mov_ps(_mm512_min_ps(a.v, b.v), _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), a.v)};
}
inline Vector max(Vector a, Vector b) {
  return {_mm512_mask_mov_ps(_mm512_max_ps(a.v, b.v), _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), a.v)};
}
inline Vector sign(Vector a) {
  const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, zero, _CMP_GT_OQ), one) -
          _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, zero, _CMP_LT_OQ), one)};
}

#elif defined(__AVX2__)

struct Vector {
  static constexpr std::size_t width = 8;
  __m256 v;
  static Vector load(const float* p) { return {_mm256_load_ps(p)}; }
  static Vector load(const Bf16* p) {
    const __m128i halves = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
  }
  static Vector all(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_store_ps(p, v); }
  void stream(float* p) const { _mm256_stream_ps(p, v); }
  void store(Bf16* p) const { _mm_store_si128(reinterpret_cast<__m128i*>(p), narrow()); }
  void stream(Bf16* p) const { _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrow()); }

 private:
  __m128i narrow() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(kHalfUlp)), odd);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i upper = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), _mm256_set1_epi32(kNaN), nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};
struct Squares {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  void add(Vector x) {
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
    low = _mm256_add_pd(low, _mm256_mul_pd(a, a));
    high = _mm256_add_pd(high, _mm256_mul_pd(b, b));
  }
  void store(double* p) const {
    _mm256_storeu_pd(p, low);
    _mm256_storeu_pd(p + 4, high);
  }
};
inline Vector operator+(Vector a, Vector b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vector sqrt(Vector a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vector min(Vector a, Vector b) {
  return {_mm256_blendv_ps(_mm256_min_ps(a.v, b.v), a.v, _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q))};
}
inline Vector max(Vector a, Vector b) {
  return {_mm256_blendv_ps(_mm256_max_ps(a.v, b.v), a.v, _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q))};
}
inline Vector sign(Vector a) {
  const __m256 zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1);
  return {_mm256_and_ps(_mm256_cmp_ps(a.v, zero, _CMP_GT_OQ), one) -
          _mm256_and_ps(_mm256_cmp_ps(a.v, zero, _CMP_LT_OQ), one)};
}

#else

struct Vector {
  static constexpr std::size_t width = 1;
  float v;
  static Vector load(const float* p) { return {*p}; }
  static Vector load(const Bf16* p) { return {std::bit_cast<float>(std::uint32_t(*p) << 16)}; }
  static Vector all(float x) { return {x}; }
  void store(float* p) const { *p = v; }
  void stream(float* p) const { *p = v; }
  void store(Bf16* p) const { *p = narrow(); }
  void stream(Bf16* p) const { *p = narrow(); }

 private:
  Bf16 narrow() const {
    if (std::isnan(v)) return Bf16(kNaN);
    const auto bits = std::bit_cast<std::uint32_t>(v);
    return Bf16((bits + kHalfUlp + ((bits >> 16) & 1)) >> 16);
  }
};
struct Squares {
  double sum = 0;
  void add(Vector x) { sum += double(x.v) * double(x.v); }
  void store(double* p) const { *p = sum; }
};
inline Vector operator+(Vector a, Vector b) { return {a.v + b.v}; }
inline Vector operator-(Vector a, Vector b) { return {a.v - b.v}; }
inline Vector operator*(Vector a, Vector b) { return {a.v * b.v}; }
inline Vector operator/(Vector a, Vector b) { return {a.v / b.v}; }
inline Vector sqrt(Vector a) { return {std::sqrt(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {std::fma(a.v, b.v, c.v)}; }
inline Vector min(Vector a, Vector b) { return {std::isnan(a.v) || a.v < b.v ? a.v : b.v}; }
inline Vector max(Vector a, Vector b) { return {std::isnan(a.v) || a.v > b.v ? a.v : b.v}; }
inline Vector sign(Vector a) { return {float(a.v > 0) - float(a.v < 0)}; }

#endif

}  // namespace
}  // namespace lockstep::optim
