#pragma once

// A group of one node whose collectives on tensors of a device go from device to device through memory that all ranks
// have mapped (CUDA IPC), by libtorch's operators: several ranks may share a GPU, which NCCL refuses.
//
//   auto world = lockstep::init({.backend = "ipc"});

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/collective_note.h"
#include "lockstep/comm/ipc/exchange_buffer.h"
#include "lockstep/comm/wrapped_group.h"

namespace lockstep::comm::ipc {

/// Tensors of the host, messages and all waiting are the inner group's, so late and dead ranks are named as there. With
/// tensors of a device:
///
/// - Sums, means, products, minima and maxima are combined along the group's tree of ranks, in the order and the types
///   of the CPU's kernel, an operation at a time: the bits are those of other groups, for all dtypes and operations,
///   but for what a NaN carries.
/// - The call returns when all is done, on all ranks. A failure comes out of the call that has it.
/// - All ranks give tensors of devices, each always of the same one, which may be several ranks'. Devices have to reach
///   each other's memory. Ranks that call different things get an error that names both, and the group ends.
class IpcGroup final : public WrappedGroup {
 public:
  /// UsageError unless all ranks are on one node.
  IpcGroup(std::shared_ptr<Group> inner, const PeerMemory& memory);
  ~IpcGroup() override;

  void all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input) override;
  std::shared_ptr<Group> new_group(const std::vector<int>& ranks) override;

 private:
  /// Elements [first, first + count) of what is exchanged, in the piece of this number.
  struct Piece {
    int number = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  using Queue = std::function<void(const Piece& piece)>;

  /// give() queues copies into this rank's area, take() what reads those of all; piece after piece of `elements`, of
  /// each of which an area holds `slots` times `width` bytes.
  void exchange(const CollectiveNote& note, c10::Device device, std::int64_t elements, std::size_t width, int slots,
                const Queue& give, const Queue& take);
  void agree(const CollectiveNote& note);
  void make_buffer(c10::Device device);
  at::Tensor reduced(ReduceOp op, at::ScalarType dtype, const Piece& piece, std::size_t slot) const;

  const std::shared_ptr<Group> inner_;
  const PeerMemory memory_;
  std::unique_ptr<ExchangeBuffer> buffer_;  ///< from the first collective on a device on
};

/// IpcGroup by this process's CUDA. UsageError in one line where there is none, or when ranks are on several nodes.
std::shared_ptr<Group> over_device_memory(std::shared_ptr<Group> inner);

}  // namespace lockstep::comm::ipc
