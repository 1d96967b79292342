#pragma once

// The safetensors format (github.com/huggingface/safetensors): 8 bytes little-endian length
// of the header, a JSON header with dtype, shape and byte range of each tensor, then the
// tensors, row-major, without holes. Python reads what this writes, and the other way round.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace lockstep::checkpoint {

using TensorMap = std::map<std::string, at::Tensor>;

/// The same in memory of the host, which is where files are written from; tensors that are there stay what they are.
TensorMap on_host(TensorMap tensors);

/// All tensors of the file, in CPU memory of their own. The whole header is checked against
/// the file before memory is taken; UsageError naming file and offset when anything is wrong:
/// too short, header outside the file, no valid JSON or nested deeper than the format, unknown
/// dtype, a shape that no tensor can have, shape × dtype other than the byte range, ranges that
/// overlap, leave holes or reach outside, names twice. What the message quotes is cut off.
TensorMap read_safetensors(const std::string& path);

/// Writes the tensors (any device and strides, conjugate and negative views; CPU row-major in the file) so that the
/// file appears whole or not at all. Equal input gives equal bytes: tensors lie in the order of falling element size,
/// then name, which keeps each aligned to its element size; the header is padded to 8 bytes. `metadata` becomes
/// __metadata__. UsageError when the target cannot be written, a dtype has no name in the format, a tensor is
/// undefined, sparse, without values (meta) or called
/// __metadata__, a name or the metadata are no UTF-8, or the header gets longer than 100 MB.
void write_safetensors(const std::string& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep::checkpoint
