#pragma once

// Memory of a device that all ranks of a group see: an area of each rank's, which it writes and the others read.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/device/peer_memory.h"

namespace lockstep::comm::ipc {

using device::PeerMemory;

class ExchangeBuffer {
 public:
  /// A piece of a collective: an area has two of these, used in turn. 4 MiB keep a GPU busy for longer than the ranks
  /// take to meet, and eight ranks on one GPU take 64 MiB in all.
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  /// Each rank's area, on `device` of this rank, and those of the others; a collective. Error on all ranks, and the end
  /// of the group, when the device refuses; whose process a rank is in makes no difference.
  ///
  /// An area outlives the object: the process has it for its next group. A peer may have it mapped still, and memory
  /// that is freed before has no defined end (cudaIpcCloseMemHandle).
  ExchangeBuffer(Group& group, const PeerMemory& memory, c10::Device device);
  ~ExchangeBuffer();
  ExchangeBuffer(const ExchangeBuffer&) = delete;
  ExchangeBuffer& operator=(const ExchangeBuffer&) = delete;

  c10::Device device() const { return device_; }
  /// `count` elements of a piece of a rank's, from byte `first` on. Only one's own is written.
  at::Tensor part(int rank, int piece, std::size_t first, std::int64_t count, at::ScalarType dtype) const;

 private:
  void open(Group& group);

  const PeerMemory memory_;
  const c10::Device device_;
  void* own_ = nullptr;
  std::vector<void*> areas_;   ///< by rank
  std::vector<void*> opened_;  ///< those of other processes
};

}  // namespace lockstep::comm::ipc
