#pragma once

// A module's parameters and buffers by their PyTorch names.

#include "lockstep/checkpoint/files/name_map.h"
#include "lockstep/checkpoint/safetensors.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::checkpoint {

/// What Python's state_dict() holds: parameters and buffers. The tensors are the module's
/// own, not copies.
TensorMap state_dict(const torch::nn::Module& module);

/// UsageError listing every difference in names, shapes and dtypes (the first thousand of them, names cut off after 80
/// bytes), when there is one. `source` says where the tensors are from ("file w.safetensors").
void check_fits(const TensorMap& wanted, const TensorMap& given, const std::string& source);

/// Copies `tensors` into the module's parameters and buffers. Names, shapes and dtypes must
/// be exactly the module's: otherwise a UsageError as of check_fits(), and the module is untouched.
void load_into(torch::nn::Module& module, const TensorMap& tensors, const std::string& source);

/// Adds to `tensors` the counts of batches (num_batches_tracked, 0) that a BatchNorm of `wanted` has and the files of
/// old PyTorch lack, torchvision's published ones too; as load_state_dict does.
void add_missing_counts(const TensorMap& wanted, TensorMap& tensors);

/// The same of the file's weights, of any kind that read_weights() takes, under the names that `names` gives them. What
/// is wanted and is in the file, but as no tensor that can be read, is named so.
void load_file_into(torch::nn::Module& module, const std::string& path, const NameMap& names = {});

}  // namespace lockstep::checkpoint
