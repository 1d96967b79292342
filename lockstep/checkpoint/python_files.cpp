#include "lockstep/checkpoint/python_files.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/files/weights_file.h"
#include "lockstep/checkpoint/files/write_weights.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {

TensorMap read_weights(const std::string& path, std::map<std::string, std::string>* others, const NameMap& names) {
  const WeightsFile file(path, names);
  TensorMap tensors;
  for (const auto& [name, stored] : file.tensors()) {
    at::Tensor tensor = at::empty(stored.sizes, dtype_of(stored.dtype));
    file.read(stored, static_cast<std::byte*>(tensor.mutable_data_ptr()));
    tensors.emplace(name, std::move(tensor));
  }
  if (others != nullptr) *others = file.others();
  return tensors;
}

void check_read(const TensorMap& wanted, const TensorMap& tensors, const std::map<std::string, std::string>& others,
                const std::string& source) {
  for (const auto& [name, tensor] : wanted)
    if (const auto other = others.find(name); other != others.end() && !tensors.contains(name))
      throw UsageError(source + " has '" + brief(name) + "' as " + other->second +
                       ", which is no dense tensor and stays unread");
}

void write_pt(const std::string& path, const TensorMap& tensors) {
  TensorSources sources;
  for (const auto& [name, tensor] : tensors) {
    if (const std::string why = obstacle_to_writing(tensor); !why.empty())
      throw UsageError("writing '" + path + "': tensor '" + brief(name) + "' " + why);
    sources[name] = {.dtype = dtype_name(tensor.scalar_type()),
                     .sizes = tensor.sizes().vec(),
                     .fill = [&tensor = tensor](std::byte* out) {
                       const at::Tensor plain = written_out(tensor);
                       if (plain.nbytes() > 0) std::memcpy(out, plain.const_data_ptr(), plain.nbytes());
                     }};
  }
  write_pt(path, sources);
}

}  // namespace lockstep::checkpoint
