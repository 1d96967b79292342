#pragma once

// The few vector operations of the update kernel, one type per instruction set. Each is one
// IEEE operation per lane: a program written with them gives the same bits in all three.
// Only included by the kernel_*.cpp files, which are compiled for their instruction set.

#include <immintrin.h>

#include <cmath>
#include <cstddef>

namespace lockstep::optim {
namespace {  // each kernel file its own: the same names mean other code there

#if defined(__AVX512F__)

struct Vector {
  static constexpr std::size_t width = 16;
  __m512 v;
  static Vector load(const float* p) { return {_mm512_load_ps(p)}; }
  static Vector all(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_store_ps(p, v); }
  void stream(float* p) const { _mm512_stream_ps(p, v); }
};
inline Vector operator+(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vector sqrt(Vector a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

#elif defined(__AVX2__)

struct Vector {
  static constexpr std::size_t width = 8;
  __m256 v;
  static Vector load(const float* p) { return {_mm256_load_ps(p)}; }
  static Vector all(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_store_ps(p, v); }
  void stream(float* p) const { _mm256_stream_ps(p, v); }
};
inline Vector operator+(Vector a, Vector b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vector operator-(Vector a, Vector b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vector operator*(Vector a, Vector b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vector operator/(Vector a, Vector b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vector sqrt(Vector a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }

#else

struct Vector {
  static constexpr std::size_t width = 1;
  float v;
  static Vector load(const float* p) { return {*p}; }
  static Vector all(float x) { return {x}; }
  void store(float* p) const { *p = v; }
  void stream(float* p) const { *p = v; }
};
inline Vector operator+(Vector a, Vector b) { return {a.v + b.v}; }
inline Vector operator-(Vector a, Vector b) { return {a.v - b.v}; }
inline Vector operator*(Vector a, Vector b) { return {a.v * b.v}; }
inline Vector operator/(Vector a, Vector b) { return {a.v / b.v}; }
inline Vector sqrt(Vector a) { return {std::sqrt(a.v)}; }
inline Vector fma(Vector a, Vector b, Vector c) { return {std::fma(a.v, b.v, c.v)}; }

#endif

}  // namespace
}  // namespace lockstep::optim
