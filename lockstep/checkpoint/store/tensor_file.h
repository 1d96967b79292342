#pragma once

// Writes tensors that lie in memory to a safetensors file, without libtorch: for whoever has a state and no tensors.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/store/manifest.h"

namespace lockstep::checkpoint {

/// A tensor as memory.
struct TensorBytes {
  std::string name;
  std::string dtype;  ///< as the format spells it: "F32"
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements, of any order
  const std::byte* data = nullptr;
  /// Where there are no data in memory: its elements, row-major, when its turn comes.
  std::function<void(std::byte* out)> fill = {};
};

/// A tensor of a file's header.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> sizes;
  std::uint64_t begin = 0;  ///< byte range within the data that follow the header
  std::uint64_t end = 0;
};

/// The header's text, padded with spaces to a multiple of 8. Names and metadata must be UTF-8.
std::string header_text(const std::vector<HeaderEntry>& entries, const std::map<std::string, std::string>& metadata);

/// Bytes of an element of a dtype; 0 when the format has no such dtype.
std::size_t element_bytes(const std::string& dtype);

/// The file appears whole and is on disk when this returns, or not at all; equal tensors give equal bytes, those of
/// write_safetensors(). Returns what a manifest says of it, under the name `path` ends with.
/// UsageError for two tensors of one name, an unknown dtype, a name that is no UTF-8 or "__metadata__"; Error when the
/// system refuses.
FileEntry write_tensors(const std::string& path, std::vector<TensorBytes> tensors);

/// The same of a file that is one piece, state.json for instance.
FileEntry write_text(const std::string& path, const std::string& text);

/// state::tensors_hash() of the tensors that were written as `file`.
std::string weights_hash(std::vector<TensorBytes> tensors, const FileEntry& file);

}  // namespace lockstep::checkpoint
