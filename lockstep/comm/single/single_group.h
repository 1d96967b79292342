#pragma once

// The world of one: collectives return their input. It has a node like any other group, so
// that nothing above needs a branch.

#include "lockstep/comm/node_group.h"

namespace lockstep::comm {

class SingleGroup final : public NodeGroup {
 public:
  /// Of its own, or a part of another group.
  explicit SingleGroup(base::Whole whole = {});

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void carry(Messages& messages) override;
  void exchange_bytes(const CollectiveNote& note, std::size_t elements, std::size_t width, const PutChunk& put,
                      const TakeChunk& take) override;
  std::shared_ptr<NodeGroup> new_node_group(const std::vector<int>& ranks) override;
  at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) override;
  base::Node* shared_node() override { return &node_; }

 private:
  base::Node node_;
};

}  // namespace lockstep::comm
