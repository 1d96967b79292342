#pragma once

// Numbers of 16 bits: IEEE 754's binary16 and bfloat16, which is the upper half of a float. Pure functions,
// thread-safe.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::base {

/// The value of a number with so many bits of exponent, and of significand behind its leading one.
template <int exponent_bits, int fraction_bits>
double from_small_float(std::uint16_t bits) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1, kMost = (1 << exponent_bits) - 1;
  const int exponent = bits >> fraction_bits & kMost, fraction = bits & ((1 << fraction_bits) - 1);
  double value = 0;
  if (exponent == kMost)
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(double(fraction), 1 - kBias - fraction_bits);
  else
    value = std::ldexp(double(fraction | 1 << fraction_bits), exponent - kBias - fraction_bits);
  return (bits & 0x8000) != 0 ? -value : value;
}

/// The nearest number, to the even one where two are as near; infinity where `value` is too large. Once rounded: by way
/// of a float it would be twice.
template <int exponent_bits, int fraction_bits>
std::uint16_t to_small_float(double value) {
  constexpr int kBias = (1 << (exponent_bits - 1)) - 1, kMost = (1 << exponent_bits) - 1;
  constexpr int kFraction = 52;  // of a double, whose exponent has the bias 1023
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = std::uint16_t(bits >> 63 << 15);
  if (std::isnan(value)) return std::uint16_t(sign | kMost << fraction_bits | 1 << (fraction_bits - 1));
  if (std::isinf(value)) return std::uint16_t(sign | kMost << fraction_bits);
  const int exponent = int(bits >> kFraction & 0x7ff) - 1023 + kBias;
  std::uint64_t whole = bits & ((std::uint64_t(1) << kFraction) - 1);
  int dropped = kFraction - fraction_bits;
  if (exponent >= 1) {
    whole |= std::uint64_t(exponent) << kFraction;  // a fraction that rounds up carries into it
  } else {
    whole |= std::uint64_t(1) << kFraction;
    dropped += 1 - exponent;
    if (dropped > kFraction + 1) return sign;  // below half of the smallest; a double without a leading one is, too
  }
  const std::uint64_t kept = whole >> dropped, rest = whole & ((std::uint64_t(1) << dropped) - 1);
  const std::uint64_t half = std::uint64_t(1) << (dropped - 1);
  const std::uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
  const std::uint64_t infinity = std::uint64_t(kMost) << fraction_bits;
  return std::uint16_t(sign | (rounded < infinity ? rounded : infinity));
}

inline double from_half(std::uint16_t bits) { return from_small_float<5, 10>(bits); }
inline std::uint16_t to_half(double value) { return to_small_float<5, 10>(value); }
inline double from_bfloat16(std::uint16_t bits) { return from_small_float<8, 7>(bits); }
inline std::uint16_t to_bfloat16(double value) { return to_small_float<8, 7>(value); }

}  // namespace lockstep::base
