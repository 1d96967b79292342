#include "lockstep/checkpoint/agree.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/parallel/held_shares.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

// Rank 0's text on all ranks.
std::string broadcast_text(comm::Group& group, const std::string& text) {
  const at::Tensor size = at::full({1}, std::int64_t(text.size()), at::kLong);
  group.broadcast(size);
  const at::Tensor bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  if (group.rank() == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  group.broadcast(bytes);
  return {static_cast<const char*>(bytes.const_data_ptr()), std::size_t(bytes.numel())};
}

std::string conditions(int shards, int threads) {
  return std::to_string(shards) + (shards == 1 ? " shard, " : " shards, ") + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

// What find() says or throws. Paths that are no UTF-8 are passed on all the same.
json looked_for(const std::string& folder, const std::string& which) {
  try {
    const std::optional<Found> found = find(folder, which);
    if (!found) return json::object();
    for (const Skipped& one : found->skipped)
      base::tell(STDERR_FILENO,
                 "lockstep: warning: checkpoint '" + base::shown(one.path) + "' is passed over: " + one.why + "\n");
    json skipped = json::array();
    for (const Skipped& one : found->skipped) skipped.push_back(json::array({one.path, one.why}));
    return {{"path", found->path}, {"step", found->step}, {"skipped", skipped}};
  } catch (const Error& error) {
    return {{"problem", error.what()}};
  }
}

}  // namespace

bool has_living_state(parallel::Engine& engine) {
  comm::Group& group = engine.group();
  if (engine.options().zero1)
    return !parallel::holders_of_all(parallel::held_by_nodes(group, engine.options().name)).empty();
  base::Node* const node = group.shared_node();
  const bool here = node != nullptr && state::is_committed_in(node->segment, engine.options().name);
  if (group.wire() == nullptr) return here;
  const std::vector<std::string> all = comm::all_gather_bytes(group, here ? "1" : "");
  return std::ranges::any_of(all, [](const std::string& node) { return !node.empty(); });
}

void load_on_all(comm::Group& group, torch::nn::Module& module, const std::string& file) {
  std::string problem;
  try {
    if (group.rank() == 0) load_into(module, read_safetensors(file), "'" + file + "'");
  } catch (const std::exception& error) {
    problem = error.what();
  }
  problem = comm::broadcast_bytes(group, problem);
  if (!problem.empty()) throw UsageError(problem);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : state_dict(module)) all.push_back(tensor.detach());
  comm::broadcast_coalesced(group, all);
}

void tell_other_bits(const std::string& path, const SavedState& saved, const parallel::Engine& engine) {
  const std::string theirs = conditions(saved.shards, saved.threads);
  const std::string ours = conditions(engine.shards(), at::get_num_threads());
  if (theirs != ours)
    base::tell(STDERR_FILENO, "lockstep: checkpoint '" + base::shown(path) + "' is of " + theirs + ", here " + ours +
                                  ": the bits to come are others\n");
}

Resumed found_by_all(comm::Group& group, const std::string& folder, const std::string& which) {
  const json mine = group.rank() == 0 ? looked_for(folder, which) : json();
  const std::vector<std::uint8_t> packed = json::to_cbor(mine);
  const std::string text = broadcast_text(group, {packed.begin(), packed.end()});
  const json all = json::from_cbor(text);
  if (all.contains("problem")) throw UsageError(all["problem"].get<std::string>());
  Resumed resumed;
  if (!all.contains("path")) return resumed;
  resumed.path = all["path"];
  resumed.step = all["step"];
  for (const json& one : all["skipped"]) resumed.skipped.push_back({one[0], one[1]});
  return resumed;
}

}  // namespace lockstep::checkpoint
