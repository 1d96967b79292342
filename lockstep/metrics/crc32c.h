#pragma once

// CRC-32C (Castagnoli), as the records of TensorBoard event files carry it.

#include <cstdint>
#include <string_view>

namespace lockstep::metrics {

/// RFC 3720, appendix B.4: reflected polynomial 0x82f63b78, all ones before and after.
std::uint32_t crc32c(std::string_view bytes);

/// The form stored in TFRecord frames: rotated right by 15 bits, plus a constant, so that a
/// checksum of data that holds checksums is not weak.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::metrics
