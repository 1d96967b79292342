#pragma once

// torch.distributed's backend "lockstep": collectives of CPU tensors through a group of ours.

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "lockstep/comm/group.h"
#include "python/turns.h"

namespace lockstep::python {

/// What each collective takes, and does, is written in torch.distributed and lockstep/comm/group.h. What a tensor or an
/// operation is refused for (UsageError there) is a ValueError here, of the call or of its Work. Options' own timeouts
/// are not looked at: the group's holds for each wait.
class Backend : public c10d::Backend {
 public:
  /// `suffix` ends the messages of failures: what its ranks are called elsewhere, when that differs.
  Backend(std::shared_ptr<comm::Group> group, std::string suffix);

  const std::string getBackendName() const override { return "lockstep"; }

  using Result = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  Result allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Result allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Result broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Result reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Result allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Result _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Result allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  Result allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override;
  Result gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Result scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  Result reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  Result _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                              const c10d::ReduceScatterOptions& options) override;
  Result reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                         const c10d::ReduceScatterOptions& options) override;
  Result alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                       std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Result alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Result barrier(const c10d::BarrierOptions& options) override;

  /// comm/point_to_point.h; the group's thread moves them. Tags are 0 to 65535, and part of the order.
  Result send(Tensors& tensors, int to, int tag) override;
  Result recv(Tensors& tensors, int from, int tag) override;
  /// Refused: ValueError.
  Result recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override {}
  /// Collectives called so far; messages between two ranks are none.
  std::uint64_t getSequenceNumberForGroup() override { return called_; }

  /// comm::Group::shared_empty. Collective.
  at::Tensor shared_empty(const std::vector<std::int64_t>& sizes, at::ScalarType dtype);

  ~Backend() override;

  /// All ranks' waits end, with an error that names this rank.
  void abort() override;
  /// Ends what is under way, and leaves.
  void shutdown() override { turns_->close(); }
  /// The same when nobody waits for the rest (turns.h).
  void leave() { turns_->leave(); }

 private:
  Result add(c10d::OpType type, const char* name, const Tensors& inputs, Tensors outputs, bool is_async,
             Work::Collective collective);
  Result add(c10d::OpType type, const char* name, comm::P2POp op);

  std::unique_ptr<Turns> turns_;
  std::atomic<std::uint64_t> called_ = 0;
};

}  // namespace lockstep::python
