#pragma once

// One rank of a world of any size, in one process, that talks to nobody: torch.distributed's backend "fake". To look at
// what a program of many ranks does on one of them: its memory, its time without communication, its shapes.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// Refuses what other groups refuse, and moves no value from anywhere but this rank:
///
///   all_reduce, broadcast, recv     leave the tensor as it is
///   all_gather                      this rank's tensor in each place
///   reduce_scatter                  this rank's part of its own input
///   all_to_all                      its own input
///   barrier, send                   nothing
///
/// Tensors of shared_empty() are ordinary ones. new_group() makes a fake group, or null. There is no node, so
/// optimizers of lockstep::optim have no place for their state; those of torch::optim train. After abort() every call
/// throws GroupAborted.
class FakeGroup final : public Group {
 public:
  /// UsageError unless 0 <= rank < world.
  FakeGroup(int rank, int world);

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override;
  void barrier() override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  void carry(Messages& messages) override;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;
  bool abort(const std::string& cause, int exit_code) override;

 private:
  /// The failure of the world and its parts.
  struct Fate {
    std::mutex mutex;
    std::unique_ptr<Failure> failure;
  };
  FakeGroup(int rank, const std::vector<int>& names, std::shared_ptr<Fate> fate);
  void check_abort() const;

  const std::vector<int> names_;  ///< by rank, its number in the world
  const std::shared_ptr<Fate> fate_;
};

}  // namespace lockstep::comm
