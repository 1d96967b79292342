#pragma once

// One step of the fused path, from the gradients in the slots to the committed state. docs/design/step.md walks through
// it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/update.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/node_check.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/shard_session.h"
#include "lockstep/parallel/slice_update.h"
#include "lockstep/parallel/step_clock.h"

namespace lockstep::parallel {

class StepTransaction {
 public:
  /// All of them must outlive this. `clock` is told of waits for other ranks.
  StepTransaction(FusedState& fused, GradientSlots& slots, ShardSession& session, comm::Group& group,
                  const DataParallelOptions& options, StepClock& clock);

  /// What of run() is this rank's alone, and comes first in it: Error where one of its backward passes broke, or what
  /// the rules throw. To be mended by this rank, which has taken part in nothing yet.
  void prepare(const optim::Rules& rules);

  /// Collective. Error on all ranks, with nothing written, for a norm that the options refuse, and where the nodes have
  /// other states. Error on this rank alone when one of its backward passes broke: the others wait until it has mended
  /// that. Any other failure of a rank is the group's. Without inputs this rank's gradients are zeros (Engine::join).
  /// GroupAborted behind the committed step where the job makes room for another node (base/room.h).
  void run(const optim::Rules& rules, const optim::StepOptions& options, bool has_inputs = true);

  /// Whether a rank was asked to stop before it came to the last step: the same on all ranks.
  bool should_stop() const { return should_stop_; }

  /// How this rank's slice was written in the last step; nothing when this process has made none.
  std::optional<optim::Stores> stores() const { return slice_.stores(); }

 private:
  void gather(const optim::Rules& rules, const optim::StepOptions& options, bool has_inputs);
  template <class Body>
  void wait_for_others(const char* what, const Body& body);
  void exchange();
  void require_same_options();
  double agreed_mean();
  void set_used();
  void skip_overflow(const optim::LossScale& scale, double norm);
  [[noreturn]] void refuse(const std::string& why);
  void write_record(double gradient_norm);
  void vote();
  void flip();

  FusedState& fused_;
  GradientSlots& slots_;
  ShardSession& session_;
  comm::Group& group_;
  base::Member& member_;
  const std::optional<EmaOptions> ema_;
  const bool in_float16_;  ///< sums of gradients travel between nodes
  StepClock& clock_;
  SliceUpdate slice_;
  NodeCheck node_check_;
  float mean_ = 1;  ///< by which sums of gradients are multiplied
  bool should_stop_ = false;
  bool skipped_ = false;  ///< the step: a gradient is not finite under a scaled loss
  // By shard, written by the rank that computes it; read behind the exchange.
  std::vector<const state::ShardRecord*> records_;
  std::vector<const state::ParameterUse*> uses_;  ///< each of all parameters
  std::vector<bool> used_;                        ///< by parameter: whether any shard of the step has a gradient of it
};

}  // namespace lockstep::parallel
