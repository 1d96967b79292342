#pragma once

// Numbers in files, the lowest byte first. Pure functions, thread-safe.

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::checkpoint {

static_assert(std::endian::native == std::endian::little, "these formats are little-endian and so are we");

/// The number at `at`, which must lie within `bytes`.
template <class Number>
Number little(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// The number's bytes behind `out`.
template <class Number>
void put_little(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace lockstep::checkpoint
