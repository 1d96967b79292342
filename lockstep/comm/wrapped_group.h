#pragma once

// A group that hands every call on to another one: the base of groups that add something to whatever carries the bytes.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// Override what is to be done otherwise. What new_group() makes is the inner group's, not wrapped, unless overridden.
class WrappedGroup : public Group {
 public:
  /// UsageError without a group.
  explicit WrappedGroup(std::shared_ptr<Group> inner);

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override { inner_->all_reduce(tensor, op); }
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    inner_->reduce_scatter(output, input, op);
  }
  void broadcast(const at::Tensor& tensor, int root) override { inner_->broadcast(tensor, root); }
  /// Of a tensor of a device: made of all_gather_into_tensor(), so that who overrides that one has both.
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override { inner_->barrier(); }
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override { inner_->all_to_all(output, input); }
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override {
    inner_->all_gather_into_tensor(output, input);
  }
  void carry(Messages& messages) override { inner_->carry(messages); }
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override { return inner_->new_group(ranks); }
  at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    return inner_->shared_empty(sizes, dtype);
  }
  base::Node* shared_node() override { return inner_->shared_node(); }
  Wire* wire() override { return inner_->wire(); }
  CallLog* call_log() override { return inner_->call_log(); }
  bool abort(const std::string& cause, int exit_code) override { return inner_->abort(cause, exit_code); }

 protected:
  Group& inner() const { return *inner_; }

 private:
  std::shared_ptr<Group> inner_;
};

}  // namespace lockstep::comm
