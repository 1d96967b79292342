#pragma once

// Blocks of 16 rows turned on their side, so that a step along a row is a step of 16 bytes: what
// runs along rows then has 16 neighbours to work on at once.

#include <cstddef>
#include <cstdint>

namespace lockstep::data {

inline constexpr int kBlockRows = 16;

/// to[rows * i + r] = row r of `from`, byte i; rows `stride` bytes apart, r < rows <= 16, i < count.
void stand_up(const std::uint8_t* from, std::ptrdiff_t stride, int rows, std::size_t count, std::uint8_t* to);

/// The way back: row r of `to`, byte i = from[rows * i + r].
void lay_down(const std::uint8_t* from, std::size_t count, int rows, std::uint8_t* to, std::ptrdiff_t stride);

}  // namespace lockstep::data
