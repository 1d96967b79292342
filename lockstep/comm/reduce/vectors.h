#pragma once

// 64 bytes at a time by the compiler's vector types, which it turns into what the instruction set of
// the file has. Only included by the kernel_*.cpp files, which are compiled for theirs.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::comm {
namespace {  // each kernel file its own: the same names mean other code there

constexpr std::size_t kBytes = 64;

template <class T>
struct VectorOf {
  using type __attribute__((vector_size(kBytes))) = T;
};
template <class T>
using Vector = typename VectorOf<T>::type;
// As many as there are floats in a vector.
using Vector16 __attribute__((vector_size(kBytes / 2))) = std::uint16_t;

template <class V>
inline V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
inline void store(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

using Floats = Vector<float>;
using Words = Vector<std::uint32_t>;

inline Floats as_floats(Words bits) { return load<Floats>(&bits); }
inline Words as_words(Floats values) { return load<Words>(&values); }

inline Floats from_bfloat16(Vector16 bits) { return as_floats(__builtin_convertvector(bits, Words) << 16); }

template <class V>
inline auto is_nan(V values) {
  return values != values;  // NOLINT(misc-redundant-expression): only a NaN is not itself
}

// To the nearest, ties to even; NaNs as c10 has them.
inline Vector16 to_bfloat16(Floats values) {
  const Words bits = as_words(values);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return __builtin_convertvector(is_nan(values) ? Words{} + 0x7fc0 : rounded, Vector16);
}

#if defined(__AVX512F__)
inline Floats from_float16(Vector16 bits) {
  return load<Floats>(&(const __m512&)_mm512_cvtph_ps(load<__m256i>(&bits)));
}
inline Vector16 to_float16(Floats values) {
  const __m256i bits = _mm512_cvtps_ph(load<__m512>(&values), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return load<Vector16>(&bits);
}
#elif defined(__F16C__)
inline Floats from_float16(Vector16 bits) {
  const __m128i* half = reinterpret_cast<const __m128i*>(&bits);
  const __m256 both[2] = {_mm256_cvtph_ps(half[0]), _mm256_cvtph_ps(half[1])};
  return load<Floats>(both);
}
inline Vector16 to_float16(Floats values) {
  const __m256* half = reinterpret_cast<const __m256*>(&values);
  const __m128i both[2] = {_mm256_cvtps_ph(half[0], _MM_FROUND_TO_NEAREST_INT),
                           _mm256_cvtps_ph(half[1], _MM_FROUND_TO_NEAREST_INT)};
  return load<Vector16>(both);
}
#else
// As c10/util/Half.h does it, by arithmetic on the exponents.
inline Floats from_float16(Vector16 half) {
  const Words bits = __builtin_convertvector(half, Words) << 16;
  const Words twice = bits + bits;
  const Floats normal = as_floats((twice >> 4) + (0xE0U << 23)) * 0x1.0p-112f;
  const Floats denormal = as_floats((twice >> 17) | (126U << 23)) - 0.5f;
  return as_floats((bits & 0x80000000U) | (twice < (1U << 27) ? as_words(denormal) : as_words(normal)));
}
inline Vector16 to_float16(Floats values) {
  const Words bits = as_words(values);
  const Words twice = bits + bits;
  const Floats base = as_floats(bits & 0x7FFFFFFFU) * 0x1.0p+112f * 0x1.0p-110f;
  const Words exponent = twice & 0xFF000000U;
  const Words bias = exponent < 0x71000000U ? Words{} + 0x71000000U : exponent;
  const Words sum = as_words(as_floats((bias >> 1) + 0x07800000U) + base);
  const Words rest = ((sum >> 13) & 0x7C00U) + (sum & 0x0FFFU);
  return __builtin_convertvector(((bits >> 16) & 0x8000U) | (twice > 0xFF000000U ? Words{} + 0x7E00U : rest), Vector16);
}
#endif

}  // namespace
}  // namespace lockstep::comm
