#include "lockstep/checkpoint/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/store/manifest.h"
#include "lockstep/checkpoint/store/verify.h"
#include "lockstep/comm/collectives.h"

namespace lockstep::checkpoint {
namespace {

// What forward may draw from, and what stands behind the rank in the name of its state.
struct Source {
  std::string suffix;
  at::Generator generator;
};

std::vector<Source> sources_of(at::Device device) {
  std::vector<Source> sources{{"", at::detail::getDefaultCPUGenerator()}};
  if (!device.is_cpu())
    sources.push_back(
        {"-" + c10::DeviceTypeName(device.type(), /*lower_case=*/true), at::globalContext().defaultGenerator(device)});
  return sources;
}

std::string name_of(std::size_t rank, const Source& source) { return "rank-" + std::to_string(rank) + source.suffix; }

at::Tensor state_of(const Source& source) {
  at::Generator generator = source.generator;
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

bool is_in(const Manifest& manifest) {
  return std::ranges::any_of(manifest.files, [](const FileEntry& file) { return file.name == kRandomName; });
}

// Of how many ranks `states` has one of `source`.
std::size_t ranks_in(const TensorMap& states, const Source& source) {
  std::size_t ranks = 0;
  while (states.contains(name_of(ranks, source))) ++ranks;
  return ranks;
}

// Why nothing is gone on from.
std::string obstacle(const Source& source, std::size_t saved, std::size_t ranks) {
  return "has random numbers of " + (saved == 0 ? "no" : std::to_string(saved)) + (saved == 1 ? " rank" : " ranks") +
         (source.suffix.empty() ? "" : " on a device '" + source.suffix.substr(1) + "'") + ", here " +
         (ranks == 1 ? "is " : "are ") + std::to_string(ranks) +
         ": torch's generator stays as the program has seeded it";
}

}  // namespace

TensorMap gathered_random_states(comm::Group& group, at::Device device) {
  TensorMap states;
  for (const Source& source : sources_of(device)) {
    const std::vector<at::Tensor> all = comm::gather(group, state_of(source));
    for (std::size_t rank = 0; rank < all.size(); ++rank) states.emplace(name_of(rank, source), all[rank]);
  }
  return states;
}

void resume_random_state(const comm::Group& group, const std::string& path, at::Device device) {
  const std::string file = path + "/" + kRandomName;
  const TensorMap states = is_in(read_manifest(path)) ? read_safetensors(file) : TensorMap();
  const auto ranks = std::size_t(group.size());
  for (const Source& source : sources_of(device)) {
    if (const std::size_t saved = ranks_in(states, source); saved != ranks) {
      if (group.rank() == 0)
        base::tell(STDERR_FILENO,
                   "lockstep: checkpoint '" + base::shown(path) + "' " + obstacle(source, saved, ranks) + "\n");
      continue;
    }
    const at::Tensor& mine = states.at(name_of(std::size_t(group.rank()), source));
    const at::Tensor now = state_of(source);
    if (mine.scalar_type() != now.scalar_type() || mine.sizes() != now.sizes())
      throw UsageError("'" + file + "': no state of torch's generator of rank " + std::to_string(group.rank()));
    at::Generator generator = source.generator;
    const std::lock_guard lock(generator.mutex());
    generator.set_state(mine);
  }
}

}  // namespace lockstep::checkpoint
