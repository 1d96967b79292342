#pragma once

// The node's shared state and everything that ties the module to it.

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/device/host_registration.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/beginning.h"
#include "lockstep/parallel/between_nodes.h"
#include "lockstep/parallel/module_buffers.h"
#include "lockstep/parallel/module_view.h"
#include "lockstep/parallel/node_lane.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shares_before.h"
#include "lockstep/state/binding.h"
#include "lockstep/state/shared_state.h"
#include "lockstep/state/write_guard.h"

namespace lockstep::parallel {

/// Rounds the bfloat16 copies of a buffer's weights, as the update does.
void write_copies(const state::SharedState& state, int buffer);

// In the order in which they depend on each other; destroyed from the last to the first.
struct FusedState {
  /// Collective: takes over the state of an earlier generation, or makes one of what it is to begin with. What
  /// is committed is then everybody's. Error naming the rank whose layout, average, seed, waves, reduction, compression
  /// or zero1 are others than rank 0's.
  /// UsageError when the optimizer puts a parameter into a group that is none.
  FusedState(const ModuleView& module, const Beginning& beginning, comm::Group& group,
             const DataParallelOptions& options, const optim::Needs& needs);

  std::uint64_t next_step() const { return state.committed().step + 1; }

  /// Of each trainable parameter: in how many committed steps it was updated.
  const std::uint64_t* step_counts() const;

  /// Error naming the parameter that somebody gave other memory or values, and what to do instead.
  void check_bound() const;
  /// Error naming the frozen parameter that wants a gradient now.
  void check_frozen() const;

  /// The parameters become the committed ones.
  void flip();
  /// Waits for what this rank still copies from the state to a device.
  void settle() const;

  /// The committed module buffers.
  const std::byte* committed_buffers() const;
  /// The module's, with the float32 weights: the committed ones, also while it shows its average. On the CPU, wherever
  /// the module is.
  std::map<std::string, at::Tensor> state_dict(const ModuleView& module) const;
  /// The running averages of the weights, if there are any: memory that the next step leaves behind.
  std::vector<at::Tensor> averages() const;

  /// Writes the running average of the module buffers in buffer `to`, behind those.
  void average_buffers(int to, const EmaOptions& options) const;

  const at::Device device;  ///< of the module
  SharesBefore before;      ///< what an earlier attempt has left of a state that is shared out
  state::SharedState state;
  std::unique_ptr<BetweenNodes> nodes;  ///< null: there is one node, whatever carries its messages
  std::unique_ptr<NodeLane> lane;       ///< null: a step sends one wave, or none
  state::WriteGuard guard;
  const KeptBytes& kept;
  ModuleBuffers buffers;
  const device::HostRegistration page_locked;        ///< all of the state, for copies to and from the device
  const std::unique_ptr<state::Binding> parameters;  ///< the trainable ones
  const std::unique_ptr<state::Binding> frozen;
  bool shows_average = false;  ///< the module does, instead of its weights
  bool joins = false;          ///< within join(): ranks may be without inputs, and end it
  /// What the update adds up: the gradients of all slots, or what all nodes' came to.
  struct Gradients {
    std::vector<const void*> summands;
    at::ScalarType type = at::kFloat;
  };
  std::map<std::size_t, Gradients> gradients;  ///< by where their part begins

 private:
  std::vector<at::Tensor> committed(std::size_t array) const;
  std::vector<at::Tensor> masters() const;
  const std::byte* committed_weights() const;
  const std::byte* committed_frozen() const;
  const std::byte* source(std::size_t offset) const;
};

}  // namespace lockstep::parallel
