#pragma once

// The gradient slots of this rank's shards: where a finished gradient goes, and whether all
// of them came.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/parallel/shards.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class GradientSlots {
 public:
  /// The slots of `shards` of `state`.
  GradientSlots(const state::SharedState& state, ShardSpan shards);

  /// Moves the gradient of parameter `parameter` into the slot of `shard`: a copy the first
  /// time in a step, an addition after that. Its own graph (create_graph) is left behind.
  /// Error for a sparse gradient or another dtype.
  void put(int shard, std::size_t parameter, const at::Tensor& gradient);

  /// Error naming the parameter and shard when a slot was not written since clear().
  void check_complete() const;

  /// Whether no slot was written since clear().
  bool empty() const;

  /// Starts the next step: nothing is written.
  void clear();

 private:
  struct Slot {
    at::Tensor tensor;
    bool written = false;
  };

  const state::Layout& layout_;
  int first_;
  std::vector<std::vector<Slot>> slots_;  ///< by local shard, then by parameter
};

}  // namespace lockstep::parallel
