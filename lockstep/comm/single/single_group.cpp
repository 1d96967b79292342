#include "lockstep/comm/single/single_group.h"

#include <ATen/ops/empty_like.h>

#include "lockstep/comm/checks.h"

namespace lockstep::comm {

SingleGroup::SingleGroup() : node_(base::Segment::create(1), 0) {}

void SingleGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op);
  node_.member.check_abort();
}

void SingleGroup::broadcast(const at::Tensor& tensor, int root) {
  check_cpu(tensor, "broadcast");
  check_root(root, 1);
  node_.member.check_abort();
}

std::vector<at::Tensor> SingleGroup::all_gather(const at::Tensor& tensor) {
  check_cpu(tensor, "all_gather");
  node_.member.check_abort();
  return {tensor.detach().clone(at::MemoryFormat::Contiguous)};
}

void SingleGroup::barrier() { node_.member.check_abort(); }

}  // namespace lockstep::comm
