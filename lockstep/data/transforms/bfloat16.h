#pragma once

// float32 to bfloat16 and back, for plain loops.

#include <bit>
#include <cstdint>

namespace lockstep::data {

/// The nearest, half to even; of a finite number.
inline std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t(half) << 16); }

}  // namespace lockstep::data
