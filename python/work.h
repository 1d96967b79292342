#pragma once

// One collective of a group as torch.distributed's Work.

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::python {

/// The exception that Python gets for what the library throws: ValueError for wrong use, torch.distributed's
/// DistBackendError for a group that has failed, RuntimeError for anything else. One line; `suffix` ends it.
std::exception_ptr for_python(const std::exception_ptr& thrown, const std::string& suffix = "");

/// Runs once, in whichever thread has its turn (turns.h); then it is completed, and never touches a tensor again.
class Work final : public c10d::Work {
 public:
  using Collective = std::function<void(comm::Group&)>;

  /// `outputs` is what getFuture() gives. `name` and the shapes of `inputs` are told to the profiler; the name lives
  /// for ever.
  Work(int rank, c10d::OpType type, const char* name, const std::vector<at::Tensor>& inputs,
       std::vector<at::Tensor> outputs, Collective collective);

  /// Throws nothing: what the collective throws is kept for wait(). `suffix`: see for_python().
  void run(comm::Group& group, const std::string& suffix);
  /// Ends one that was moved by others (a message), well or with an error for Python. Where it returns true somebody
  /// has asked for the future, and complete_future() is to follow, where a callback may call collectives.
  [[nodiscard]] bool end(const std::exception_ptr& error);
  void complete_future();

  /// Returns when it has ended and throws what it threw, each time. `timeout` 0: its group's deadline is enough.
  /// DistBackendError when it has not ended by then; the collective goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void complete(const c10::intrusive_ptr<c10::ivalue::Future>& future);

  std::vector<at::Tensor> outputs_;
  Collective collective_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< made when somebody asks for it
  bool ended_ = false;                              ///< a future that is made now is complete
};

}  // namespace lockstep::python
