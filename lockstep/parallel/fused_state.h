#pragma once

// What exists of an engine once an optimizer of ours is attached: the node's shared state and everything that ties the
// module to it.

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/backward_watch.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/gradient_slots.h"
#include "lockstep/parallel/module_buffers.h"
#include "lockstep/parallel/module_view.h"
#include "lockstep/parallel/shard_session.h"
#include "lockstep/state/binding.h"
#include "lockstep/state/shared_state.h"
#include "lockstep/state/write_guard.h"

namespace lockstep::parallel {

// In the order in which they depend on each other; destroyed from the last to the first.
struct FusedState {
  /// Collective: makes the state from rank 0's module, or takes over that of an earlier generation.
  FusedState(const ModuleView& module, comm::Group& group, const DataParallelOptions& options, int optimizer_arrays,
             GradientHooks::Callback on_gradient);

  /// Error naming the parameter that somebody gave other memory, and what to do instead.
  void check_bound() const;

  /// The module becomes the committed state.
  void flip();

  /// On one rank, between two barriers: runs fn() on a copy of the committed state, with writable float32 parameters
  /// and without autograd, and commits the result for the same step. What fn() throws leaves the committed state
  /// (where there is one buffer, as fn() has left that).
  /// UsageError when fn() gave a parameter or a buffer another shape or dtype.
  void edit(const std::function<void()>& fn);

  state::SharedState state;
  state::WriteGuard guard;
  ModuleBuffers buffers;
  GradientSlots slots;
  ShardSession session;
  BackwardWatch watch;
  state::Binding parameters;  ///< the trainable ones
  state::Binding frozen;
  GradientHooks hooks;
  std::map<std::size_t, std::vector<const void*>> gradients;  ///< all shards' slots, by where their part begins

 private:
  const std::byte* committed_weights() const;
  const std::byte* committed_frozen() const;
  void end_edit();
};

}  // namespace lockstep::parallel
