#pragma once

// A group whose calls are counted, so that what is told of a wait says which one it is; and kept, where there is a
// folder for them, and left in a file when the group ends early: `lockstep trace` explains such files.

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/call_log.h"
#include "lockstep/comm/wrapped_group.h"
#include "lockstep/rendezvous/environment.h"

namespace lockstep::comm {

/// What is made of it, is traced, too.
class TracedGroup final : public WrappedGroup {
 public:
  TracedGroup(std::shared_ptr<Group> inner, std::unique_ptr<CallLog> log);

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
  CallLog* call_log() override { return log_.get(); }
  bool abort(const std::string& cause, int exit_code) override;

 private:
  std::unique_ptr<CallLog> log_;
};

/// Where a rank's trace goes, and how many calls are in it.
struct TraceSettings {
  std::string folder;  ///< empty: nowhere, and calls are only counted
  std::size_t capacity = 1000;
};

/// The folder: `folder`, else LOCKSTEP_TRACE_DIR, else that of TORCHELASTIC_ERROR_FILE where the launcher has given the
/// rank a folder for its logs. LOCKSTEP_TRACE_BUFFER_SIZE: how many calls, 1000 unless given; 0: none are kept.
/// UsageError naming the variable when it is no number from 0 to 1000000. Pure.
TraceSettings trace_settings(const std::string& folder, const rendezvous::GetEnv& get);

/// The world's group with its trace. As it is where there is no folder and, for want of others, nothing to wait for.
std::shared_ptr<Group> traced(std::shared_ptr<Group> world, const rendezvous::Place& place,
                              const TraceSettings& settings);

}  // namespace lockstep::comm
