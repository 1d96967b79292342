#pragma once

// Memory of batches, used again: fresh memory costs a page fault for every 4 KiB, more than it costs to
// make a batch of small pictures.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace lockstep::data {

/// Makes tensors whose memory comes back here when the last of them and their views is gone, and is handed
/// out again. So it grows to what is in use at the same time. At most kKept blocks lie here unused, of together at most
/// kKeptBytes, or twice what the last tensor asked for: batches of a size take turns, whatever it is, and larger ones
/// of before do not stay. Tensors may outlive it. Page-locked memory, for a process with a device, is libtorch's, which
/// keeps and hands out its blocks in the same way, and knows of copies that are under way. Thread-safe.
class BatchMemory {
 public:
  static constexpr std::size_t kKept = 8;
  static constexpr std::size_t kKeptBytes = std::size_t(256) << 20;

  explicit BatchMemory(bool pinned = false);

  /// Not initialised, aligned to 64 bytes. Sizes at least 1; the tensor cannot be resized to more.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type,
                   at::MemoryFormat format = at::MemoryFormat::Contiguous) const;

  /// What lies here unused; 0 of page-locked memory.
  std::size_t unused_bytes() const;

  struct Blocks;

 private:
  std::shared_ptr<Blocks> blocks_;
  bool pinned_;
};

}  // namespace lockstep::data
