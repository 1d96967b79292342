#include "lockstep/base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace lockstep::base {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

// The instruction gives its result after three cycles and can begin with another each: three lanes at the same time.
constexpr std::size_t kLane = 1024;

// What kLane bytes of zero make of a checksum: it is linear, so a table for each of its bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 4> make_shift() {
  std::array<std::array<std::uint32_t, 256>, 4> shift{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = 1u << bit;
    for (std::size_t byte = 0; byte < kLane; ++byte) crc = kTable[crc & 0xff] ^ (crc >> 8);
    for (std::size_t value = 0; value < 256; ++value)
      if ((value >> bit % 8 & 1) != 0) shift[bit / 8][value] ^= crc;
  }
  return shift;
}

constexpr std::array<std::array<std::uint32_t, 256>, 4> kShift = make_shift();

std::uint64_t shifted(std::uint64_t crc) {
  return kShift[0][crc & 0xff] ^ kShift[1][crc >> 8 & 0xff] ^ kShift[2][crc >> 16 & 0xff] ^ kShift[3][crc >> 24 & 0xff];
}

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 2 * kLane) {
    std::uint64_t second = 0, third = 0;
    for (const std::byte* const end = at + kLane; at < end; at += kWord) {
      crc = _mm_crc32_u64(crc, word_at(at));
      second = _mm_crc32_u64(second, word_at(at + kLane));
      third = _mm_crc32_u64(third, word_at(at + 2 * kLane));
    }
    crc = shifted(shifted(crc) ^ second) ^ third;
  }
  for (; left >= kWord; left -= kWord, at += kWord) crc = _mm_crc32_u64(crc, word_at(at));
  auto rest = std::uint32_t(crc);
  for (; left > 0; --left, ++at) rest = _mm_crc32_u8(rest, std::uint8_t(*at));
  return ~rest;
}

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const std::byte byte : bytes) crc = kTable[(crc ^ std::uint32_t(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  return has_instruction ? by_instruction(bytes, before) : crc32c_by_table(bytes, before);
}

}  // namespace lockstep::base
