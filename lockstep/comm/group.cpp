#include "lockstep/comm/group.h"

#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/checks.h"

namespace lockstep::comm {

at::Tensor Group::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  check_sizes(sizes);
  return at::zeros(sizes, dtype);
}

bool Group::abort(const std::string& cause, int exit_code) {
  base::Node* const node = shared_node();
  return node == nullptr || node->member.fail(cause, exit_code);
}

base::Node& Group::node() {
  base::Node* const node = shared_node();
  if (node == nullptr)
    throw UsageError(
        "this group has no node: what needs memory that ranks share works with groups whose shared_node() gives one");
  return *node;
}

}  // namespace lockstep::comm
