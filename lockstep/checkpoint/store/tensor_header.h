#pragma once

// The header of a safetensors file, read as data without libtorch. Pure functions, thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/store/input_file.h"
#include "lockstep/checkpoint/store/tensor_file.h"

namespace lockstep::checkpoint {

/// The header begins behind its length.
inline constexpr std::uint64_t kTensorHeaderStart = 8;

/// The header's text. UsageError naming file and offset when the file ends before it does, or it is longer than the 100
/// MB that the reference implementation allows.
std::string read_tensor_header(const InputFile& file);

/// Reads and checks a header whose data are `data_bytes` long; entries in the order of their
/// ranges. UsageError that names `file` and the offset in the file on anything wrong.
std::vector<HeaderEntry> parse_tensor_header(std::string_view header, std::uint64_t data_bytes,
                                             const std::string& file);

/// The longest header, in bytes.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;

/// What a file says, as a message shows it: base::shown(), cut off after 80 bytes.
std::string brief(std::string_view text);

/// Whether JSON can hold the text.
bool is_utf8(const std::string& text);

}  // namespace lockstep::checkpoint
