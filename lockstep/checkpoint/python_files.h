#pragma once

// Weights from and for Python: the files of torch.save beside safetensors.

#include <map>
#include <string>

#include "lockstep/checkpoint/files/name_map.h"
#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// The weights of a file, told by its content: safetensors, or what torch.save wrote (.pt, .pth), of any version since
/// 0.2 and of any device. Nothing in it is executed. Which part of it is the weights, and which prefix is removed from
/// their names, files/weights_file.h says. Tensors are in CPU memory of their own, row-major. `others`: gets what else
/// the file has, and what it is. `names`: what its tensors are called here (files/name_map.h). UsageError naming file
/// and offset when it is damaged or has no weights.
TensorMap read_weights(const std::string& path, std::map<std::string, std::string>* others = nullptr,
                       const NameMap& names = {});

/// UsageError when one of `others`, what read_weights() has left unread, is what `wanted` needs and `tensors` lack:
/// names it and its class. `source`: "file w.pt".
void check_read(const TensorMap& wanted, const TensorMap& tensors, const std::map<std::string, std::string>& others,
                const std::string& source);

/// Writes the tensors (any device and strides) as torch.save writes a state_dict; torch.load opens the file by its
/// defaults, and with weights_only. Equal tensors give equal bytes. The file appears whole or not at all. UsageError as
/// write_safetensors().
void write_pt(const std::string& path, const TensorMap& tensors);

}  // namespace lockstep::checkpoint
