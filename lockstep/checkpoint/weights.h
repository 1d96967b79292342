#pragma once

// A module's parameters and buffers by their PyTorch names.

#include "lockstep/checkpoint/safetensors.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::checkpoint {

/// What Python's state_dict() holds: parameters and buffers. The tensors are the module's
/// own, not copies.
TensorMap state_dict(const torch::nn::Module& module);

/// Copies `tensors` into the module's parameters and buffers. Names, shapes and dtypes must
/// be exactly the module's: otherwise one UsageError lists every difference (the first
/// thousand of them, names cut off after 80 bytes), and the module is untouched. `source` says where the tensors are
/// from ("file w.safetensors").
void load_into(torch::nn::Module& module, const TensorMap& tensors, const std::string& source);

}  // namespace lockstep::checkpoint
