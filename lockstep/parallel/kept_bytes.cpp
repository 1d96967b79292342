#include "lockstep/parallel/kept_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

void KeptBytes::keep(std::string name, std::span<std::byte> memory) {
  if (name.empty()) throw UsageError("data parallel: keep() needs a name");
  if (memory.empty()) throw UsageError("data parallel: keep('" + name + "') of no bytes");
  if (std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.name == name; }))
    throw UsageError("data parallel: keep('" + name + "') twice; each owner takes a name of its own");
  kept_.push_back({std::move(name), memory});
}

std::vector<state::NamedBytes> KeptBytes::specs() const {
  std::vector<state::NamedBytes> specs;
  for (const Kept& kept : kept_) specs.push_back({kept.name, kept.memory.size()});
  return specs;
}

std::map<std::string, std::span<std::byte>> KeptBytes::by_name() const {
  std::map<std::string, std::span<std::byte>> found;
  for (const Kept& kept : kept_) found.emplace(kept.name, kept.memory);
  return found;
}

void KeptBytes::store(const state::SharedState& state, int buffer) const {
  for (std::size_t i = 0; i < kept_.size(); ++i)
    std::memcpy(state.write(state.layout().named_bytes(buffer, i)), kept_[i].memory.data(), kept_[i].memory.size());
}

void KeptBytes::load(const state::SharedState& state) const {
  const int buffer = int(state.committed().buffer);
  for (std::size_t i = 0; i < kept_.size(); ++i)
    std::memcpy(kept_[i].memory.data(), state.read(state.layout().named_bytes(buffer, i)), kept_[i].memory.size());
}

}  // namespace lockstep::parallel
