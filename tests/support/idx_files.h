#pragma once

// IDX files of unsigned bytes for tests.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::testing {

/// Four bytes, the highest first.
inline std::string word(std::uint32_t value) {
  return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
}

inline std::string idx(const std::vector<std::uint32_t>& sizes, const std::string& bytes) {
  std::string content = word(0x800 + std::uint32_t(sizes.size()));
  for (const std::uint32_t size : sizes) content += word(size);
  return content + bytes;
}

}  // namespace lockstep::testing
