#pragma once

// The module's buffers (BatchNorm statistics): private to each rank while a shard runs, part
// of the state when it is committed. Every shard starts from the committed values; what shard
// 0 makes of them goes into the next state, what the others make is dropped (as DDP's
// broadcast_buffers does).

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class ModuleBuffers {
 public:
  /// `buffers` in the order of the layout's; contiguous.
  ModuleBuffers(std::vector<at::Tensor> buffers, const state::Layout& layout);

  /// Sets the private buffers to the values at `from`.
  void load(const std::byte* from);
  /// Keeps the private buffers' values as those of the next state.
  void capture();
  /// Writes what was captured (by the rank of shard 0).
  void write_captured(std::byte* to) const;
  /// Writes the private buffers' values.
  void store(std::byte* to) const;

 private:
  std::vector<at::Tensor> buffers_;
  const state::Layout& layout_;
  std::vector<std::byte> captured_;
};

}  // namespace lockstep::parallel
