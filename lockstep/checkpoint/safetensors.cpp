#include "lockstep/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors_file.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and so are we");

void check_writable(const std::string& path, const TensorMap& tensors,
                    const std::map<std::string, std::string>& metadata) {
  const auto refuse = [&](const std::string& what) { throw UsageError("writing '" + path + "': " + what); };
  for (const auto& [name, tensor] : tensors) {
    const std::string who = "tensor '" + brief(name) + "' ";
    if (!is_utf8(name)) refuse(who + "has a name that is no UTF-8");
    if (name == "__metadata__") refuse("no tensor can be called __metadata__");
    if (const std::string why = obstacle_to_writing(tensor); !why.empty()) refuse(who + why);
  }
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) refuse("metadata '" + brief(key) + "' are no UTF-8");
  }
}

std::vector<TensorEntry> lay_out(const TensorMap& tensors) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), 0, 0});
  // The map is in name order already, and a stable sort keeps it so within an element size.
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
  });
  std::uint64_t next = 0;
  for (TensorEntry& entry : entries) {
    entry.begin = next;
    next += tensors.at(entry.name).nbytes();
    entry.end = next;
  }
  return entries;
}

}  // namespace

TensorMap on_host(TensorMap tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
  return tensors;
}

std::string obstacle_to_writing(const at::Tensor& tensor) {
  if (!tensor.defined()) return "is undefined";
  if (tensor.layout() != at::kStrided) {
    return "has the layout " + c10::str(tensor.layout()) + ", only dense tensors can be written";
  }
  if (tensor.is_meta()) return "is on the device meta and has no values";
  if (dtype_name(tensor.scalar_type()) == nullptr) {
    return std::string("has the dtype ") + c10::toString(tensor.scalar_type()) + ", which safetensors does not know";
  }
  return "";
}

at::Tensor written_out(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
}

TensorMap read_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  TensorMap tensors;
  for (const auto& [name, described] : file.described())
    tensors.emplace(name, at::empty(described.sizes(), described.scalar_type()));
  file.read({tensors.begin(), tensors.end()});
  return tensors;
}

void write_safetensors(const std::string& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_writable(path, tensors, metadata);
  const std::vector<TensorEntry> entries = lay_out(tensors);
  const std::string header = format_header(entries, metadata);
  const std::uint64_t length = header.size();
  if (length > kLongestHeader) {
    throw UsageError("writing '" + path + "': a header of " + std::to_string(length) + " bytes, 100 MB is the limit");
  }
  base::AtomicFile file(path);
  file.write(&length, kTensorHeaderStart);
  file.write(header.data(), header.size());
  for (const TensorEntry& entry : entries) {
    const at::Tensor plain = written_out(tensors.at(entry.name));
    file.write(plain.const_data_ptr(), entry.end - entry.begin);
  }
  file.commit();
}

}  // namespace lockstep::checkpoint
