#include "lockstep/comm/stand_ins/failing_group.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {

FailingGroup::FailingGroup(std::shared_ptr<Group> inner, PlannedFailure failure)
    : WrappedGroup(std::move(inner)), failure_(std::move(failure)) {}

void FailingGroup::count_call() {
  const std::vector<int>& ranks = failure_.ranks;
  const bool is_here = ranks.empty() || std::find(ranks.begin(), ranks.end(), rank()) != ranks.end();
  if (++calls_ < failure_.at || failure_.at == 0 || !is_here) return;
  if (failure_.tells) abort(failure_.cause, kExitFailure);
  throw Error(failure_.cause);
}

void FailingGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  count_call();
  inner().all_reduce(tensor, op);
}

void FailingGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  count_call();
  inner().reduce_scatter(output, input, op);
}

void FailingGroup::broadcast(const at::Tensor& tensor, int root) {
  count_call();
  inner().broadcast(tensor, root);
}

std::vector<at::Tensor> FailingGroup::all_gather(const at::Tensor& tensor) {
  count_call();
  return inner().all_gather(tensor);
}

void FailingGroup::barrier() {
  count_call();
  inner().barrier();
}

void FailingGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  count_call();
  inner().all_to_all(output, input);
}

void FailingGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  count_call();
  inner().all_gather_into_tensor(output, input);
}

void FailingGroup::carry(Messages& messages) {
  count_call();
  inner().carry(messages);
}

std::shared_ptr<Group> FailingGroup::new_group(const std::vector<int>& ranks) {
  count_call();
  return inner().new_group(ranks);
}

at::Tensor FailingGroup::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  count_call();
  return inner().shared_empty(sizes, dtype);
}

}  // namespace lockstep::comm
