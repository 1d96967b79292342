#pragma once

// Weights into files, without libtorch, one tensor in memory at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/files/weights_file.h"

namespace lockstep::checkpoint {

/// A tensor to be written, which comes into memory when its turn comes.
struct TensorSource {
  std::string dtype;  ///< as safetensors spells it
  std::vector<std::int64_t> sizes;
  std::function<void(std::byte* out)> fill;  ///< its elements, row-major
};

using TensorSources = std::map<std::string, TensorSource>;

/// All tensors of a file, which must outlive the result.
TensorSources sources_of(const WeightsFile& file);

/// A state_dict as torch.save writes it (zip archive, protocol 2), which torch.load opens with weights_only too: an
/// OrderedDict in the order of names. Equal tensors give equal bytes. The file appears whole or not at all. UsageError
/// when it cannot be written, a dtype is unknown, or a name is no UTF-8; Error when the system refuses.
void write_pt(const std::string& path, const TensorSources& tensors);

/// The same as safetensors; the bytes are those of write_safetensors().
void write_as_safetensors(const std::string& path, const TensorSources& tensors);

/// Whether the name is one of torch.save's, ".pt", ".pth" or ".pth.tar", or ends in ".safetensors". UsageError for any
/// other, so that nobody finds one format under the name of another.
bool is_pt_name(const std::string& path);

/// In the format that the name says, as is_pt_name() tells it.
void write_weights(const std::string& path, const TensorSources& tensors);

}  // namespace lockstep::checkpoint
