#include "lockstep/checkpoint/files/weights_file.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/files/state_dict.h"
#include "lockstep/checkpoint/store/find.h"
#include "lockstep/checkpoint/store/tensor_header.h"
#include "lockstep/checkpoint/store/write.h"

namespace lockstep::checkpoint {
namespace {

// A header's length may begin with the bytes of another format; the header itself begins with a brace.
bool has_a_header(const InputFile& file) {
  return file.size() > kTensorHeaderStart && file.bytes(kTensorHeaderStart, 1) == "{";
}

FoundWeights found_in(const InputFile& file, const std::string& path) {
  if (!has_a_header(file) && begins_as_pt(file)) return weights_in(file, PtFile(file));
  const std::string header = read_tensor_header(file);
  const std::uint64_t data = kTensorHeaderStart + header.size();
  FoundWeights found;
  for (const HeaderEntry& entry : parse_tensor_header(header, file.size() - data, path))
    found.tensors[entry.name] = {
        .dtype = entry.dtype, .sizes = entry.sizes, .strides = row_major(entry.sizes), .offset = data + entry.begin};
  return found;
}

FoundWeights under_other_names(FoundWeights found, const NameMap& map, const std::string& path) {
  if (map.empty()) return found;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : found.tensors) names.push_back(name);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [theirs, ours] : renamed(names, map, path)) tensors.insert_or_assign(ours, found.tensors.at(theirs));
  found.tensors = std::move(tensors);
  return found;
}

}  // namespace

WeightsFile::WeightsFile(const std::string& path, const NameMap& names)
    : path_(path), file_(path), found_(under_other_names(found_in(file_, path), names, path)) {}

std::string weights_path(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  const std::string folder = std::filesystem::absolute(checkpoints_below(path)).string();
  return find(folder, folder)->path + "/" + kModelName;
}

}  // namespace lockstep::checkpoint
