#pragma once

// The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), as far as event files need it: each
// function appends a field to a message.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics::protobuf {

enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

inline void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

inline void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | wire);
}

inline void put_integer(std::string& out, int field, std::int64_t value) {
  put_key(out, field, kVarint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

inline void put_float(std::string& out, int field, float value) {
  put_key(out, field, kFixed32);
  put_little_endian(out, std::bit_cast<std::uint32_t>(value));
}

inline void put_double(std::string& out, int field, double value) {
  put_key(out, field, kFixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(value));
}

/// Text, bytes, or a message within the message.
inline void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

inline void put_packed(std::string& out, int field, const std::vector<double>& values) {
  std::string packed;
  for (const double value : values) put_little_endian(packed, std::bit_cast<std::uint64_t>(value));
  put_bytes(out, field, packed);
}

}  // namespace lockstep::metrics::protobuf
