#include "lockstep/parallel/zero_redundancy_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

#include "lockstep/amp/fused_optimizers.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kPlace = 16;  // bytes: where any dtype may begin

at::Device device_of(const ZeroParts::ParamGroups& groups) {
  for (const auto& one : groups)
    if (!one.params().empty()) return one.params().front().device();
  return at::kCPU;
}

std::string saved_options(const ZeroParts::ParamGroups& groups) {
  torch::serialize::OutputArchive archive;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    torch::serialize::OutputArchive one(archive.compilation_unit());
    try {
      groups[i].options().serialize(one);
    } catch (const c10::Error&) {
      throw UsageError(
          "ZeroRedundancyOptimizer: join() sends the options of the groups to ranks without inputs, and those of this "
          "optimizer have no serialize(OutputArchive&)");
    }
    archive.write(std::to_string(i), one);
  }
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
}

void restore_options(ZeroParts::ParamGroups& groups, const std::string& saved) {
  torch::serialize::InputArchive archive;
  archive.load_from(saved.data(), saved.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    torch::serialize::InputArchive one;
    archive.read(std::to_string(i), one);
    groups[i].options().serialize(one);
  }
}

}  // namespace

std::vector<std::vector<int>> partition_parameters(const std::vector<std::vector<std::int64_t>>& elements, int ranks) {
  std::vector<std::int64_t> filled(std::size_t(ranks), 0);
  std::vector<std::vector<int>> owners;
  for (const std::vector<std::int64_t>& group : elements) {
    std::vector<std::size_t> order(group.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return group[a] > group[b]; });
    owners.emplace_back(group.size());
    for (std::size_t i : order) {
      const auto emptiest = std::min_element(filled.begin(), filled.end());
      owners.back()[i] = int(emptiest - filled.begin());
      *emptiest += group[i];
    }
  }
  return owners;
}

ZeroParts::ZeroParts(const ParamGroups& groups, std::shared_ptr<comm::Group> group)
    : group_(std::move(group)), placed_(std::size_t(group_->size())), bytes_(std::size_t(group_->size())) {
  std::vector<std::vector<std::int64_t>> elements;
  const at::Device device = device_of(groups);
  for (const auto& one : groups) {
    elements.emplace_back();
    for (const at::Tensor& parameter : one.params()) {
      if (parameter.layout() != at::kStrided || parameter.device() != device)
        throw UsageError("ZeroRedundancyOptimizer: parameter " + std::to_string(elements.back().size()) + " of group " +
                         std::to_string(elements.size() - 1) + " is not a dense tensor on " + device.str() +
                         ", where the first one is");
      elements.back().push_back(parameter.numel());
    }
  }
  owner_ = partition_parameters(elements, group_->size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      const auto rank = std::size_t(owner_[g][i]);
      placed_[rank].push_back({parameter, bytes_[rank]});
      bytes_[rank] += (std::int64_t(parameter.nbytes()) + kPlace - 1) / kPlace * kPlace;
    }
  const std::int64_t most = *std::max_element(bytes_.begin(), bytes_.end());
  memory_ = device.is_cpu() ? group_->shared_empty({most}, at::kByte)
                            : at::empty({most}, at::TensorOptions(at::kByte).device(device));
}

ZeroParts::ParamGroups ZeroParts::of(const ParamGroups& groups, int rank) const {
  ParamGroups some;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor> parameters;
    for (std::size_t i = 0; i < groups[g].params().size(); ++i)
      if (owner_[g][i] == rank) parameters.push_back(groups[g].params()[i]);
    some.emplace_back(std::move(parameters), groups[g].options().clone());
  }
  return some;
}

bool ZeroParts::are_of(const ParamGroups& groups) const {
  if (groups.size() != owner_.size()) return false;
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (groups[g].params().size() != owner_[g].size()) return false;
  return true;
}

at::Tensor ZeroParts::place_of(const Placed& one) const {
  return memory_.narrow(0, one.offset, std::int64_t(one.parameter.nbytes()))
      .view(one.parameter.scalar_type())
      .view(one.parameter.sizes());
}

void ZeroParts::exchange() const {
  const at::NoGradGuard no_grad;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const auto& placed = placed_[std::size_t(rank)];
    if (placed.empty()) continue;
    if (rank == group_->rank())
      for (const Placed& one : placed) place_of(one).copy_(one.parameter);
    group_->broadcast(memory_.narrow(0, 0, bytes_[std::size_t(rank)]), rank);
    if (rank != group_->rank())
      for (const Placed& one : placed) at::Tensor(one.parameter).copy_(place_of(one));
  }
}

void ZeroParts::follow(ParamGroups& groups, int source) const {
  const UnevenInputs* const inputs = UnevenInputs::of(*group_);
  if (inputs == nullptr || inputs->complete()) return;
  share_options(groups, source);
  for (int rank = 0; rank < group_->size(); ++rank)
    if (!inputs->has_inputs(rank)) share_gradients(rank, source);
}

void ZeroParts::share_options(ParamGroups& groups, int source) const {
  const std::string told = broadcast(group_->rank() == source ? saved_options(groups) : "", source);
  if (group_->rank() != source) restore_options(groups, told);
}

// What a rank without inputs keeps, only: those that have some have these gradients already.
void ZeroParts::share_gradients(int owner, int source) const {
  const at::NoGradGuard no_grad;
  const auto& placed = placed_[std::size_t(owner)];
  if (placed.empty()) return;
  const at::Tensor defined = at::full({std::int64_t(placed.size())}, 0, at::kByte);
  auto* const is_defined = defined.mutable_data_ptr<std::uint8_t>();
  if (group_->rank() == source)
    for (std::size_t i = 0; i < placed.size(); ++i) {
      const at::Tensor& gradient = placed[i].parameter.grad();
      is_defined[i] = gradient.defined() ? 1 : 0;
      if (gradient.defined()) place_of(placed[i]).copy_(gradient);
    }
  group_->broadcast(defined, source);
  group_->broadcast(memory_.narrow(0, 0, bytes_[std::size_t(owner)]), source);
  if (group_->rank() != owner) return;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    at::Tensor& gradient = placed[i].parameter.mutable_grad();
    if (is_defined[i] == 0)
      gradient.reset();
    else
      gradient = place_of(placed[i]).clone();
  }
}

std::string ZeroParts::broadcast(const std::string& mine, int source) const {
  const at::Tensor size = at::full({1}, std::int64_t(mine.size()), at::kLong);
  group_->broadcast(size, source);
  const at::Tensor bytes = at::full({size.item<std::int64_t>()}, 0, at::kByte);
  if (source == group_->rank()) std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  group_->broadcast(bytes, source);
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

std::string ZeroParts::describe() const {
  std::size_t parameters = 0;
  std::int64_t elements = 0, mine = 0;
  for (std::size_t rank = 0; rank < placed_.size(); ++rank) {
    parameters += placed_[rank].size();
    for (const Placed& one : placed_[rank]) {
      elements += one.parameter.numel();
      if (int(rank) == group_->rank()) mine += one.parameter.numel();
    }
  }
  return "rank " + std::to_string(group_->rank()) + " of " + std::to_string(group_->size()) +
         " keeps the optimizer state of " + std::to_string(placed_[std::size_t(group_->rank())].size()) + " of " +
         std::to_string(parameters) + " parameters, " + std::to_string(mine) + " of " + std::to_string(elements) +
         " elements";
}

namespace detail {

std::string saved_state(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
}

void restore_state(torch::optim::Optimizer& optimizer, const std::string& saved) {
  torch::serialize::InputArchive archive;
  archive.load_from(saved.data(), saved.size());
  optimizer.load(archive);
}

void copy_state(const torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  amp::settle_steps(from);
  amp::settle_steps(to);
  for (const auto& group : std::as_const(to).param_groups())
    for (const at::Tensor& parameter : group.params()) {
      const auto found = from.state().find(parameter.unsafeGetTensorImpl());
      if (found != from.state().end()) to.state()[parameter.unsafeGetTensorImpl()] = found->second->clone();
    }
  // What was cloned shares its tensors; what is read back does not.
  restore_state(to, saved_state(to));
}

void refuse_more_parameters() {
  throw UsageError(
      "ZeroRedundancyOptimizer: parameters were added, but who keeps whose state is settled; make it anew with all of "
      "them");
}

void refuse_partial_save() {
  throw UsageError(
      "ZeroRedundancyOptimizer: each rank has a part of the state; call consolidate_state_dict() on all ranks, then "
      "save state_dict()");
}

}  // namespace detail
}  // namespace lockstep::parallel
