// Any bytes in a file are weights or a UsageError. Weights that were read are no larger than the file allows, can be
// written as torch.save writes them, and are read again with the same bits.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "lockstep/checkpoint/files/compare.h"
#include "lockstep/checkpoint/files/write_weights.h"
#include "tests/fuzz/accepted.h"
#include "tests/support/scratch_folder.h"

namespace {

using namespace lockstep::checkpoint;

// One that Python would put in front of all names is taken from them again.
bool has_prefix(const WeightsFile& file) {
  return std::ranges::any_of(file.tensors(), [](const auto& entry) { return entry.first.starts_with("module."); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::testing::accepted;
  static const lockstep::testing::ScratchFolder folder;
  const std::string path = folder.write("file", std::string(reinterpret_cast<const char*>(data), size));
  std::optional<WeightsFile> file;
  if (!accepted([&] { file.emplace(path); })) return 0;
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : file->tensors()) bytes += tensor.bytes();
  if (bytes > 9 * size) std::abort();
  // To Python 2 a name is any bytes, and what is written is text.
  if (!accepted([&] { write_pt(folder.file("again"), sources_of(*file)); })) return 0;
  if (file->tensors().empty() || has_prefix(*file)) return 0;
  if (!compare(*file, WeightsFile(folder.file("again"))).differences.empty()) std::abort();
  return 0;
}
