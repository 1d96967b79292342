#pragma once

// The header of a safetensors file as data. Pure: no file is touched here.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/store/tensor_header.h"

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

/// libtorch's dtype of a name that the format has; Error for any other.
at::ScalarType dtype_of(const std::string& name);

/// The format's name of a dtype ("F32"); null when it has none.
const char* dtype_name(at::ScalarType dtype);

/// Why a tensor cannot be in a file; "" when it can.
std::string obstacle_to_writing(const at::Tensor& tensor);

/// The numbers that a tensor means, row-major: a conjugate or negative view says so by a mark alone.
at::Tensor written_out(const at::Tensor& tensor);

}  // namespace lockstep::checkpoint
