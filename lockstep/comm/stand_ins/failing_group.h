#pragma once

// A group that fails on purpose: for tests of what a program does then.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm {

/// When, where and how a group fails.
struct PlannedFailure {
  std::uint64_t at = 1;         ///< in which call of this group, counted from 1; 0: in none
  std::vector<int> ranks = {};  ///< on these; empty: on all
  std::string cause = "a failure on purpose";
  /// Whether the group is told, as by a rank that fails and says so: the others get GroupAborted. Else only this rank's
  /// call throws, and the others wait for it as for one that has gone astray.
  bool tells = true;
};

/// The planned call throws an Error with the cause, and so does every later one on that rank; nothing of it reaches the
/// inner group but the news. Calls are collectives, new_group(), shared_empty(), and messages: those that are moved at
/// the same time are one. Groups that are made of it are the inner group's, which do not fail by themselves.
class FailingGroup final : public WrappedGroup {
 public:
  FailingGroup(std::shared_ptr<Group> inner, PlannedFailure failure);

  /// How many calls have begun.
  std::uint64_t calls() const { return calls_; }

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void carry(Messages& messages) override;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;
  at::Tensor shared_empty(at::IntArrayRef sizes, at::ScalarType dtype) override;

 private:
  void count_call();

  const PlannedFailure failure_;
  std::uint64_t calls_ = 0;
};

}  // namespace lockstep::comm
