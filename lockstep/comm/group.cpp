#include "lockstep/comm/group.h"

#include <ATen/core/TensorBody.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/comm/checks.h"
#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm {

void Group::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, size());
  std::vector<at::Tensor> parts;
  for (const at::Tensor& theirs : all_gather(input))
    parts.push_back(theirs.flatten().chunk(size())[std::size_t(rank())]);
  output.detach().copy_(at::cat(parts).view(output.sizes()));
}

void Group::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  check_all_gather_into(output, input, rank(), size());
  output.detach().copy_(at::cat(all_gather(input.detach().reshape({-1}))).view(output.sizes()));
}

void Group::carry(Messages&) { throw UsageError("send and recv: groups of this kind have none"); }

std::shared_ptr<Group> Group::new_group(const std::vector<int>&) {
  throw UsageError("new_group: groups of this kind make no others");
}

at::Tensor Group::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  check_sizes(sizes);
  try {
    return at::zeros(sizes, dtype);
  } catch (const std::exception& error) {
    throw UsageError("shared_empty: " + base::line_of(error.what()));
  }
}

bool Group::abort(const std::string& cause, int exit_code) {
  base::Node* const node = shared_node();
  return node == nullptr || node->member.fail(cause, exit_code);
}

WrappedGroup::WrappedGroup(std::shared_ptr<Group> inner)
    : Group(inner != nullptr ? inner->topology() : throw UsageError("a group that wraps another needs one")),
      inner_(std::move(inner)) {}

std::vector<at::Tensor> WrappedGroup::all_gather(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return inner_->all_gather(tensor);
  check_dense(tensor, "all_gather");
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), size());
  const at::Tensor all = at::empty(sizes, tensor.options().requires_grad(false));
  all_gather_into_tensor(all, tensor);
  std::vector<at::Tensor> gathered;
  for (const at::Tensor& one : all.unbind()) gathered.push_back(one.clone());
  return gathered;
}

base::Node& Group::node() {
  base::Node* const node = shared_node();
  if (node == nullptr)
    throw UsageError(
        "this group has no node: what needs memory that ranks share works with groups whose shared_node() gives one");
  return *node;
}

}  // namespace lockstep::comm
