#pragma once

// CRC-32C (Castagnoli): what frames on a wire and records of TensorBoard's event files carry.

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::base {

/// RFC 3720, appendix B.4: reflected polynomial 0x82f63b78, all ones before and after. `before`: that of the bytes
/// which these follow; of none it is 0. By the processor's instruction where it has one, with the same result.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// The same without that instruction.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace lockstep::base
