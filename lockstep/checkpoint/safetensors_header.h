#pragma once

// The header of a safetensors file as data. Pure: no file is touched here.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

/// One tensor of the header.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype{};
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< byte range within the data that follow the header
  std::uint64_t end = 0;
};

/// Reads and checks a header whose data are `data_bytes` long; entries in the order of their
/// ranges. UsageError that names `file` and the offset in the file on anything wrong.
std::vector<TensorEntry> parse_header(std::string_view header, std::uint64_t data_bytes, const std::string& file);

/// The header's text, padded with spaces to a multiple of 8. Names and metadata must be UTF-8.
std::string format_header(const std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata);

/// What a file says, as a message shows it: base::shown(), cut off after 80 bytes.
std::string brief(std::string_view text);

/// Whether JSON can hold the text.
bool is_utf8(const std::string& text);

/// The format's name of a dtype ("F32"); null when it has none.
const char* dtype_name(at::ScalarType dtype);

}  // namespace lockstep::checkpoint
