#include "lockstep/checkpoint/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/manifest.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::checkpoint {
namespace {

std::string rank_name(std::size_t rank) { return "rank-" + std::to_string(rank); }

at::Tensor state_here() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

bool is_in(const Manifest& manifest) {
  return std::ranges::any_of(manifest.files, [](const FileEntry& file) { return file.name == kRandomName; });
}

}  // namespace

TensorMap gathered_random_states(comm::Group& group) {
  const std::vector<at::Tensor> all = comm::gather(group, state_here());
  TensorMap states;
  for (std::size_t rank = 0; rank < all.size(); ++rank) states.emplace(rank_name(rank), all[rank]);
  return states;
}

void resume_random_state(const comm::Group& group, const std::string& path) {
  const std::string file = path + "/" + kRandomName;
  const TensorMap states = is_in(read_manifest(path)) ? read_safetensors(file) : TensorMap();
  const auto ranks = std::size_t(group.size());
  if (states.size() != ranks) {
    if (group.rank() == 0)
      base::tell(STDERR_FILENO, "lockstep: checkpoint '" + base::shown(path) + "' has random numbers of " +
                                    (states.empty() ? "no" : std::to_string(states.size())) +
                                    (states.size() == 1 ? " rank" : " ranks") + ", here " +
                                    (ranks == 1 ? "is " : "are ") + std::to_string(ranks) +
                                    ": torch's generator stays as the program has seeded it\n");
    return;
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const auto mine = states.find(rank_name(std::size_t(group.rank())));
  const at::Tensor now = state_here();
  if (mine == states.end() || mine->second.scalar_type() != now.scalar_type() || mine->second.sizes() != now.sizes())
    throw UsageError("'" + file + "': no state of torch's generator of rank " + std::to_string(group.rank()));
  const std::lock_guard lock(generator.mutex());
  generator.set_state(mine->second);
}

}  // namespace lockstep::checkpoint
