#pragma once

// A tensor as it lies in a file, without libtorch.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/store/input_file.h"

namespace lockstep::checkpoint {

struct StoredTensor {
  std::string dtype;  ///< as safetensors spells it: "F32"
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements, none negative
  std::uint64_t offset = 0;           ///< in the file, of its first element
  bool big_endian = false;

  /// Of its elements, row-major.
  std::uint64_t bytes() const;
};

/// The strides of a row-major tensor.
std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& sizes);

/// The tensor's elements, row-major and little-endian, into `out` of tensor.bytes(). It must lie within the file:
/// whoever made it has checked that. Takes memory for what lies between its first element and its last where that is
/// not row-major. Any thread.
void read_tensor(const InputFile& file, const StoredTensor& tensor, std::byte* out);

}  // namespace lockstep::checkpoint
