// Any bytes in a safetensors file are tensors or a UsageError; tensors that were read can be written and read again.

#include <cstdint>
#include <cstring>
#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "tests/fuzz/accepted.h"
#include "tests/support/scratch_folder.h"

namespace {

using lockstep::checkpoint::TensorMap;

bool same(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.scalar_type() != tensor.scalar_type()) return false;
    if (other->second.sizes() != tensor.sizes() || other->second.nbytes() != tensor.nbytes()) return false;
    if (tensor.nbytes() == 0) continue;
    if (std::memcmp(tensor.const_data_ptr(), other->second.const_data_ptr(), tensor.nbytes()) != 0) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lockstep::testing::ScratchFolder folder;
  const std::string file = folder.write("file", std::string(reinterpret_cast<const char*>(data), size));
  TensorMap tensors;
  const bool accepted = lockstep::testing::accepted([&] { tensors = lockstep::checkpoint::read_safetensors(file); });
  if (!accepted) return 0;
  lockstep::checkpoint::write_safetensors(folder.file("again"), tensors);
  if (!same(tensors, lockstep::checkpoint::read_safetensors(folder.file("again")))) std::abort();
  return 0;
}
