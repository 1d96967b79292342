#pragma once

// This rank's shards while the gradients of a step are gathered: which one is active, in which pass, with which random
// numbers, module buffers and record; where its gradients go, and whether its backward passes were whole.
//
// A shard is passed once per step, or several times (gradient accumulation). Each pass draws random numbers of its own.
// Module buffers go on from pass to pass, each shard's for itself, from the committed ones; shard 0's last are those of
// the next state. Records add up: their mean counts every sample once.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/backward_watch.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/gradient_copies.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/pass_seeds.h"
#include "lockstep/parallel/shards.h"
#include "lockstep/parallel/step_clock.h"
#include "lockstep/parallel/wave_count.h"

namespace lockstep::parallel {

/// The gradient slots of this rank's shards.
class GradientSlots {
 public:
  /// Of the shards that the group's rank computes; gradients come from the module's device. `fused` must outlive this.
  GradientSlots(const FusedState& fused, const comm::Group& group);

  /// Moves the gradient of parameter `parameter` into the slot of `shard`: a copy the first
  /// time in a step, an addition after that. Its own graph (create_graph) is left behind. From a device it may come
  /// later, and has come behind finish().
  /// Error for a sparse gradient or another dtype.
  void put(int shard, std::size_t parameter, const at::Tensor& gradient);

  /// The slot itself, for whoever computes the first gradient in it at once: it counts as written. Undefined where it
  /// has one, where its dtype is another, where its elements are not in order, and where its wave has gone.
  at::Tensor take(int shard, std::size_t parameter, at::ScalarType dtype);

  /// Ends the gathering of a step: what was not written counts as zeros, and the step is told what each shard used.
  /// Error naming the parameters that were not written since clear(), but want a gradient, their shard and rank,
  /// unless they `may_be_unused`, or the rank has no inputs.
  void finish(const std::vector<at::Tensor>& parameters, bool may_be_unused, bool has_inputs);

  /// Whether no slot was written since clear().
  bool empty() const;

  /// Behind put(), and where take() has given a slot, that is filled: sends the waves that are whole by it.
  void came(int shard, std::size_t parameter) {
    if (early_) send_whole(shard, parameter);
  }

  /// Whether a gradient came behind its wave, or one that had gone was dropped: all waves of the step are to be
  /// exchanged again, on all ranks.
  bool outdated() const { return early_ && early_->outdated; }
  /// The waves were exchanged, and the ranks of the node have met behind that. `again`: slots of some rank were
  /// outdated, and have what came since now.
  void exchanged(bool again);

  /// Starts the next step: nothing is written.
  void clear();

 private:
  struct Slot {
    at::Tensor tensor;
    at::Tensor apart;  ///< of what has gone: what the slot is to be
    bool written = false;
    bool zero = false;
  };
  /// Of waves that go out while backward goes on.
  struct Early {
    NodeLane& lane;
    WaveCount count;
    bool outdated = false;
  };
  static void fill(Slot& slot);
  bool has_gone(std::size_t parameter) const {
    return early_ && early_->count.wave_of(parameter) < early_->lane.sealed();
  }
  const at::Tensor& apart_of(Slot& slot);
  void send_whole(int shard, std::size_t parameter);
  void check_complete(const std::vector<at::Tensor>& parameters) const;
  void put_from_device(Slot& to, const at::Tensor& gradient);

  const FusedState& fused_;
  const state::Layout& layout_;
  const int first_;                         ///< shard
  const int rank_;                          ///< its
  std::vector<std::vector<Slot>> slots_;    ///< by this rank's shards, then by parameter
  std::unique_ptr<GradientCopies> copies_;  ///< null: on the CPU
  std::optional<Early> early_;              ///< nothing: all goes out in step()
};

class ShardSession {
 public:
  /// All of them must outlive this.
  ShardSession(FusedState& fused, GradientSlots& slots, const ModuleView& module, comm::Group& group,
               const DataParallelOptions& options);

  /// Starts the next pass of `shard`. Error naming what was edited outside modify(): a parameter's memory, its .grad, a
  /// module buffer. UsageError when the shard is not this rank's.
  void begin_shard(int shard);
  /// The same for the only shard of a rank, unless begin_shard() has started a pass in this step; UsageError where
  /// there are several.
  void begin_forward();

  /// Adds a mean loss over `samples` samples to the active shard's record.
  void record(double loss, std::int64_t samples);

  /// For the gradient hook: moves the .grad that autograd has just finished into the active shard's slot. UsageError
  /// when no shard is active, Error when an earlier backward pass broke.
  void take_gradient(std::size_t parameter);
  /// For a layer that computes the gradient in the active shard's slot: that slot, or undefined where the gradient must
  /// come to take_gradient(). Error when an earlier backward pass broke.
  at::Tensor take_slot(std::size_t parameter, at::ScalarType dtype);
  /// Whether a gradient came in this step.
  bool has_gradients() const { return !slots_.empty(); }
  /// Error, beginning with `who`, when a backward pass of this step ended by an exception.
  void require_whole(const char* who) const { watch_.require_whole(who); }

  /// Drops all gradients, and what passes have left whose gradients these are, records and module buffers: all but an
  /// active one without any gradients. The passes count on: no random number is drawn twice in a step.
  void discard_gradients();

  /// Ends the active pass: gradients, records and what this rank told the step are where the step finds them. Error
  /// naming a parameter without a gradient, but where this rank has no inputs (Engine::join), a .grad that somebody
  /// set, or what was edited outside modify().
  void gather(std::optional<double> denominator, std::uint64_t options, std::uint64_t rules, bool has_inputs);

  /// Writes shard 0's module buffers (its rank, after gather()).
  void write_module_buffers(std::byte* to) const;

  /// Whether a pass of the step has begun.
  bool begun() const;
  /// The next step begins: no pass and no gradient yet, module buffers as committed.
  void restart();

 private:
  struct Shard {
    std::uint64_t passes = 0;
    bool from_committed = true;  ///< the next pass begins with the committed module buffers
    state::ShardRecord record;
    std::vector<std::byte> module_buffers;
  };
  Shard& at(int shard) { return shards_[std::size_t(shard - mine_.first)]; }
  void open(int shard);
  void keep_active();

  FusedState& fused_;
  GradientSlots& slots_;
  const ModuleView& module_;
  base::Member& member_;
  const ShardSpan mine_;
  const std::uint64_t seed_;
  const bool may_be_unused_;
  BackwardWatch watch_;
  std::vector<Shard> shards_;
  std::vector<PassSeeds> seeds_;  ///< by this rank's shards
  std::optional<int> active_;
  bool loops_ = false;              ///< begin_shard() was called in this step
  bool gradients_came_ = false;     ///< in the active pass
  state::ShardRecord pass_record_;  ///< of the active pass
};

/// Hooks by which `session` takes the gradients of all trainable parameters and `clock` sees them; both must outlive
/// the hooks.
GradientHooks gradient_hooks(const FusedState& fused, ShardSession& session, StepClock& clock);

}  // namespace lockstep::parallel
