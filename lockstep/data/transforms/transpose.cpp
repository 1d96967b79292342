#include "lockstep/data/transforms/transpose.h"

#include <emmintrin.h>

namespace lockstep::data {
namespace {

constexpr std::ptrdiff_t kBlock = kBlockRows;

// 16 x 16 bytes. Interleaving row r with row r + 8 four times brings every byte to its place: each
// time the number of a byte, its row's bits before its column's, is rotated left by one bit.
void transpose(const std::uint8_t* from, std::ptrdiff_t from_stride, std::uint8_t* to, std::ptrdiff_t to_stride) {
  __m128i rows[16], mixed[16];
  for (int r = 0; r < 16; ++r) rows[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + r * from_stride));
  const auto interleave = [](const __m128i* in, __m128i* out) {
    for (int r = 0; r < 8; ++r) {
      out[2 * r] = _mm_unpacklo_epi8(in[r], in[r + 8]);
      out[2 * r + 1] = _mm_unpackhi_epi8(in[r], in[r + 8]);
    }
  };
  interleave(rows, mixed);
  interleave(mixed, rows);
  interleave(rows, mixed);
  interleave(mixed, rows);
  for (int r = 0; r < 16; ++r) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + r * to_stride), rows[r]);
}

}  // namespace

void stand_up(const std::uint8_t* from, std::ptrdiff_t stride, int rows, std::size_t count, std::uint8_t* to) {
  std::size_t i = 0;
  if (rows == kBlockRows) {
    for (; i + kBlock <= count; i += kBlock) transpose(from + i, stride, to + kBlock * i, kBlock);
  }
  for (; i < count; ++i) {
    for (int r = 0; r < rows; ++r) to[std::size_t(rows) * i + std::size_t(r)] = from[r * stride + std::ptrdiff_t(i)];
  }
}

void lay_down(const std::uint8_t* from, std::size_t count, int rows, std::uint8_t* to, std::ptrdiff_t stride) {
  std::size_t i = 0;
  if (rows == kBlockRows) {
    for (; i + kBlock <= count; i += kBlock) transpose(from + kBlock * i, kBlock, to + i, stride);
  }
  for (; i < count; ++i) {
    for (int r = 0; r < rows; ++r) to[r * stride + std::ptrdiff_t(i)] = from[std::size_t(rows) * i + std::size_t(r)];
  }
}

}  // namespace lockstep::data
