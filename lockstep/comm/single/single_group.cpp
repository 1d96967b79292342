#include "lockstep/comm/single/single_group.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "lockstep/comm/checks.h"

namespace lockstep::comm {

SingleGroup::SingleGroup(base::Whole whole)
    : NodeGroup(Topology{}),
      node_(base::Segment::create(1, base::Holders::this_process), 0, base::kDefaultTimeout, std::move(whole)) {}

void SingleGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor, op, "all_reduce");
  node_.member.check_abort();
}

void SingleGroup::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  check_reduce_scatter(output, input, op, 0, 1);
  node_.member.check_abort();
  output.detach().copy_(input.detach().reshape(output.sizes()));
}

void SingleGroup::broadcast(const at::Tensor& tensor, int root) {
  check_dense(tensor, "broadcast");
  check_root(root, 1);
  node_.member.check_abort();
}

std::vector<at::Tensor> SingleGroup::all_gather(const at::Tensor& tensor) {
  check_dense(tensor, "all_gather");
  node_.member.check_abort();
  return {tensor.detach().clone(at::MemoryFormat::Contiguous)};
}

void SingleGroup::barrier() { node_.member.check_abort(); }

void SingleGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  check_all_to_all(output, input, 1);
  node_.member.check_abort();
  output.detach().copy_(input.detach().reshape(output.sizes()));
}

void SingleGroup::all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) {
  check_all_gather_into(output, input, 0, 1);
  node_.member.check_abort();
  output.detach().copy_(input.detach().reshape(output.sizes()));
}

// There is nobody to have any for.
void SingleGroup::carry(Messages&) { node_.member.check_abort(); }

// In pieces, for the caller need not know that there is nobody to copy for.
void SingleGroup::exchange_bytes(const CollectiveNote&, std::size_t elements, std::size_t width, const PutChunk& put,
                                 const TakeChunk& take) {
  node_.member.check_abort();
  if (elements == 0) return;
  const std::size_t chunk = std::min(elements, kWidest / width);
  std::vector<std::byte> part(chunk * width);
  for (std::size_t first = 0; first < elements; first += chunk) {
    const std::size_t n = std::min(chunk, elements - first);
    put(part.data(), first, n);
    take({part.data()}, first, n);
  }
}

std::shared_ptr<NodeGroup> SingleGroup::new_node_group(const std::vector<int>& ranks) {
  check_ranks(ranks, 1);
  node_.member.check_abort();
  auto group = std::make_shared<SingleGroup>(node_.whole_of(ranks));
  group->node_.member.set_stall_warning(node_.member.stall_warning());
  group->node_.member.set_compares_calls(node_.member.compares_calls());
  return group;
}

at::Tensor SingleGroup::shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  check_sizes(sizes);
  node_.member.check_abort();
  return at::zeros(sizes, dtype);
}

}  // namespace lockstep::comm
