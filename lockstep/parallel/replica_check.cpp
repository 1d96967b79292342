#include "lockstep/parallel/replica_check.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/state/hash.h"

namespace lockstep::parallel {
namespace {

// Where elements lie is the same on all ranks (ModuleView::check_equal_on_all), so their order does not matter.
std::int64_t memory_hash(const at::Tensor& parameter) {
  const at::Tensor here = parameter.detach().to(at::kCPU);
  const at::Tensor dense = here.is_non_overlapping_and_dense() ? here : here.contiguous();
  return std::int64_t(state::hash64({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()}));
}

}  // namespace

std::optional<Diverged> find_diverged(const std::vector<std::vector<std::int64_t>>& hashes) {
  for (std::size_t i = 0; i < hashes.front().size(); ++i) {
    const auto votes = [&](const std::vector<std::int64_t>& mine) {
      return std::count_if(hashes.begin(), hashes.end(), [&](const auto& other) { return other[i] == mine[i]; });
    };
    const auto most = std::max_element(hashes.begin(), hashes.end(),
                                       [&](const auto& a, const auto& b) { return votes(a) < votes(b); });
    for (std::size_t rank = 0; rank < hashes.size(); ++rank)
      if (hashes[rank][i] != (*most)[i]) return Diverged{int(rank), i};
  }
  return std::nullopt;
}

void check_replicas(comm::Group& group, const NamedTensors& parameters, std::uint64_t step) {
  std::vector<std::int64_t> mine;
  for (const auto& [name, tensor] : parameters) mine.push_back(memory_hash(tensor));
  const std::vector<at::Tensor> all =
      group.all_gather(at::from_blob(mine.data(), {std::int64_t(mine.size())}, at::kLong));
  std::vector<std::vector<std::int64_t>> hashes;
  for (const at::Tensor& one : all) {
    const auto* values = one.const_data_ptr<std::int64_t>();
    hashes.emplace_back(values, values + one.numel());
  }
  const std::optional<Diverged> found = find_diverged(hashes);
  if (!found) return;
  throw Error("data parallel: after step " + std::to_string(step) + " rank " + std::to_string(found->rank) +
              " has other values of parameter '" + parameters[found->parameter].first +
              "' than most ranks (verify_replicas_every)");
}

}  // namespace lockstep::parallel
