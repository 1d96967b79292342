#include "lockstep/comm/stand_ins/fake_group.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/messages.h"

namespace lockstep::comm {
namespace {

std::vector<int> all_ranks(int rank, int world) {
  if (rank < 0 || rank >= world)
    throw UsageError("fake group: rank " + std::to_string(rank) + " of " + std::to_string(world) +
                     "; ranks count from 0");
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

FakeGroup::FakeGroup(int rank, int world) : FakeGroup(rank, all_ranks(rank, world), std::make_shared<Fate>()) {}

FakeGroup::FakeGroup(int rank, const std::vector<int>& names, std::shared_ptr<Fate> fate)
    : Group(on_one_node(rank, int(names.size()))), names_(names), fate_(std::move(fate)) {}

void FakeGroup::check_abort() const {
  const std::lock_guard lock(fate_->mutex);
  if (fate_->failure) throw GroupAborted(*fate_->failure);
}

bool FakeGroup::abort(const std::string& cause, int exit_code) {
  const std::lock_guard lock(fate_->mutex);
  if (fate_->failure) return false;
  fate_->failure =
      std::make_unique<Failure>(Failure{.rank = names_[std::size_t(rank())], .cause = cause, .exit_code = exit_code});
  return true;
}

void FakeGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op, "all_reduce");
  check_abort();
}

void FakeGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(output, input, op, rank(), size());
  check_abort();
  const at::Tensor mine = parts_of(input.detach().contiguous(), size())[std::size_t(rank())];
  output.detach().copy_(mine.view(output.sizes()));
}

void FakeGroup::broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor, "broadcast");
  check_root(root, size());
  check_abort();
}

std::vector<at::Tensor> FakeGroup::all_gather(const at::Tensor& tensor) {
  check_dense(tensor, "all_gather");
  check_abort();
  std::vector<at::Tensor> all;
  for (int peer = 0; peer < size(); ++peer) all.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
  return all;
}

void FakeGroup::barrier() { check_abort(); }

void FakeGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, size());
  check_abort();
  output.detach().copy_(input.detach().reshape(output.sizes()));
}

void FakeGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  check_all_gather_into(output, input, rank(), size());
  check_abort();
  const at::Tensor own = input.detach().reshape({1, input.numel()}).clone();
  output.detach().copy_(own.expand({size(), input.numel()}).reshape(output.sizes()));
}

void FakeGroup::carry(Messages& messages) {
  for (check_abort(); Message* const message = messages.next();) messages.moved(*message);
}

std::shared_ptr<Group> FakeGroup::new_group(const std::vector<int>& ranks) {
  check_ranks(ranks, size());
  check_abort();
  const auto mine = std::find(ranks.begin(), ranks.end(), rank());
  if (mine == ranks.end()) return nullptr;
  std::vector<int> names;
  for (const int each : ranks) names.push_back(names_[std::size_t(each)]);
  return std::shared_ptr<Group>(new FakeGroup(int(mine - ranks.begin()), names, fate_));
}

}  // namespace lockstep::comm
