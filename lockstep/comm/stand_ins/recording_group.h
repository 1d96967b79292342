#pragma once

// A group that remembers what is called: for tests of programs, which can ask what was sent as well as what came back.

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm {

/// A call as it was made. What a kind does not have is left out.
struct RecordedCall {
  std::string name;  ///< "all_reduce", …, "new_group", "shared_empty", "send", "recv"
  std::optional<at::ScalarType> dtype = {};
  std::vector<std::int64_t> sizes = {};  ///< of the tensor; of a message its elements; of reduce_scatter the output's
  std::optional<ReduceOp> op = {};
  std::optional<int> root = {};
  std::optional<int> peer = {};  ///< of a message
  std::vector<int> ranks = {};   ///< of new_group
  std::vector<int> group = {};   ///< in which it was called: its ranks by their numbers in the group that was wrapped
                                 ///< first; empty: that one
  bool operator==(const RecordedCall&) const = default;
};

/// Groups that are made of it are recorded, too, into the same list. abort() is no call. A call is there before it is
/// made. The list may be read and cleared by any thread.
class RecordingGroup final : public WrappedGroup {
 public:
  explicit RecordingGroup(std::shared_ptr<Group> inner);

  /// In their order; of groups that are used by several threads, in that in which they came.
  std::vector<RecordedCall> calls() const;
  /// How many of this name.
  int count(const std::string& name) const;
  void clear_calls();

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
  struct List {
    mutable std::mutex mutex;
    std::vector<RecordedCall> calls;
  };
  RecordingGroup(std::shared_ptr<Group> inner, std::shared_ptr<List> list, std::vector<int> ranks);
  void record(RecordedCall call);

  const std::shared_ptr<List> list_;
  const std::vector<int> ranks_;  ///< RecordedCall::group
};

}  // namespace lockstep::comm
