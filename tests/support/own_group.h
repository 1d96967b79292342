#pragma once

// Groups as a user may write them: another group does the work.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::support {

/// Collectives alone; of a node nothing is said.
class BareGroup : public comm::Group {
 public:
  explicit BareGroup(std::shared_ptr<comm::Group> inner) : BareGroup(inner, inner->topology()) {}
  /// One that says of its place what it is told to say.
  BareGroup(std::shared_ptr<comm::Group> inner, const comm::Topology& place) : Group(place), inner_(std::move(inner)) {}

  void all_reduce(const at::Tensor& tensor, comm::ReduceOp op) override { inner_->all_reduce(tensor, op); }
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, comm::ReduceOp op) override {
    inner_->reduce_scatter(output, input, op);
  }
  void broadcast(const at::Tensor& tensor, int root) override { inner_->broadcast(tensor, root); }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return inner_->all_gather(tensor); }
  void barrier() override { inner_->barrier(); }

 protected:
  comm::Group& inner() { return *inner_; }

 private:
  std::shared_ptr<comm::Group> inner_;
};

/// Hands on the node of the group that does the work.
class WrappingGroup final : public BareGroup {
 public:
  using BareGroup::BareGroup;
  base::Node* shared_node() override { return inner().shared_node(); }
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override { inner().all_to_all(output, input); }
  std::shared_ptr<comm::Group> new_group(const std::vector<int>& ranks) override { return inner().new_group(ranks); }
};

/// Counts the calls of its collectives by name.
class CountingGroup final : public BareGroup {
 public:
  using BareGroup::BareGroup;
  void all_reduce(const at::Tensor& tensor, comm::ReduceOp op) override {
    ++calls["all_reduce"];
    BareGroup::all_reduce(tensor, op);
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    ++calls["broadcast"];
    BareGroup::broadcast(tensor, root);
  }
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    ++calls["all_gather"];
    return BareGroup::all_gather(tensor);
  }
  void barrier() override {
    ++calls["barrier"];
    BareGroup::barrier();
  }
  std::map<std::string, int> calls;
};

}  // namespace lockstep::support
