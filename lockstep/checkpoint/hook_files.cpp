#include "lockstep/checkpoint/hook_files.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/contents.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/store/verify.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;
using Tensors = parallel::HookMemory::Tensors;

// Names, dtypes and sizes.
std::string described(const Tensors& tensors) {
  json list = json::array();
  for (const auto& [name, tensor] : tensors)
    list.push_back(json::array({name, int(tensor.scalar_type()), tensor.sizes().vec()}));
  const std::vector<std::uint8_t> packed = json::to_cbor(list);
  return {packed.begin(), packed.end()};
}

Tensors empty_as(const std::string& described) {
  Tensors tensors;
  for (const json& one : json::from_cbor(described))
    tensors.emplace(one[0], at::empty(one[2].get<std::vector<std::int64_t>>(), at::ScalarType(one[1].get<int>())));
  return tensors;
}

// Those of `rank`, on all ranks: one rank's at a time, for they are as large as the gradients.
Tensors broadcast(comm::Group& group, const Tensors& mine, int rank) {
  const std::string description = comm::broadcast_bytes(group, described(mine), rank);
  Tensors tensors = rank == group.rank() ? mine : empty_as(description);
  for (const auto& [name, tensor] : tensors) group.broadcast(tensor, rank);
  return tensors;
}

int files_in(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  return int(
      std::ranges::count_if(manifest.files, [](const FileEntry& file) { return file.name.starts_with("hook-rank-"); }));
}

std::string ranks_text(int ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }

// Why nothing is gone on from.
std::string obstacle(int saved, int ranks, bool hook) {
  if (saved == 0) return "has no memory of the communication hook, which begins anew";
  if (!hook) return "has the memory of a communication hook, and none that could take it is registered: it is left out";
  return "has the memory of a communication hook on " + ranks_text(saved) + ", here are " + std::to_string(ranks) +
         ": the hook begins anew";
}

}  // namespace

std::string hook_name(int rank) { return "hook-rank-" + std::to_string(rank) + ".safetensors"; }

std::vector<Tensors> gathered_memories(parallel::Engine& engine) {
  const parallel::HookMemory* const memory = engine.hook_memory();
  if (memory == nullptr) return {};
  comm::Group& group = engine.group();
  const Tensors mine = on_host(memory->get());
  bytes_of(mine);  // on all ranks: each has the same error
  std::vector<Tensors> all;
  for (int rank = 0; rank < group.size(); ++rank)
    if (Tensors one = broadcast(group, mine, rank); group.rank() == 0) all.push_back(std::move(one));
  return all;
}

void resume_memory(parallel::Engine& engine, const std::string& path) {
  const parallel::HookMemory* const memory = engine.hook_memory();
  const int saved = files_in(path), ranks = engine.group().size(), rank = engine.group().rank();
  if (saved == 0 && memory == nullptr) return;
  if (memory == nullptr || saved != ranks) {
    if (memory != nullptr) memory->set(memory->initial);
    if (rank == 0)
      base::tell(STDERR_FILENO, "lockstep: checkpoint '" + base::shown(path) + "' " +
                                    obstacle(saved, ranks, memory != nullptr) + "\n");
    return;
  }
  const std::string file = path + "/" + hook_name(rank);
  TensorMap tensors = read_safetensors(file);
  // What is added to gradients goes where these are; counts and states of generators are numbers of the host.
  for (auto& [name, tensor] : tensors)
    if (tensor.is_floating_point()) tensor = tensor.to(engine.device());
  try {
    memory->set(tensors);
  } catch (const UsageError& error) {
    throw UsageError("checkpoint '" + path + "' is of another job: " + error.what());
  }
}

}  // namespace lockstep::checkpoint
