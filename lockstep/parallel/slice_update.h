#pragma once

// The arithmetic of a step on the slice of the weights that this rank updates: norms, and reduce and update in one
// pass. Who waits for whom is StepTransaction's; the two norms have a barrier, behind which all ranks have the same.
// Where nodes share out the optimizer's state, a slice is one of the node's share, and norms travel between nodes.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/store_choice.h"
#include "lockstep/optim/update.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/update_plan.h"

namespace lockstep::parallel {

/// Where a mean gradient is not finite.
struct NonfiniteGradient {
  std::string parameter;     ///< empty: all are finite
  std::optional<int> shard;  ///< the first whose own gradient is not; none: only their sum is, or nodes add up
};

class SliceUpdate {
 public:
  /// `ema`: of the running average, if there is one.
  SliceUpdate(FusedState& fused, comm::Group& group, const std::optional<EmaOptions>& ema);

  // In the order of a step.

  /// What a rule throws comes out.
  void choose(const optim::Rules& rules);
  /// Of each parameter, whether it is updated; `mean`: by which sums of gradients are multiplied.
  void set(const std::vector<bool>& used, float mean);
  /// Of the mean gradients, p of the p-norm. Collective.
  double gradient_norm(double p);
  /// Of the first parameter whose mean gradient is not finite. Collective where nodes share out the optimizer's state.
  NonfiniteGradient first_nonfinite() const;
  /// Scales the mean gradients, then cuts them to [-max_value, max_value] (0: does not).
  void clip(float gradient_scale, float max_value);
  /// Collective where the rules ask for norms over their parameter.
  void update();
  /// When weights of those ranges have come from other nodes: makes what goes with them, copies in bfloat16 and the
  /// average, as the update there does.
  void follow(const std::vector<state::Slice>& received) const;

  /// How this rank's slice was written in the last step; nothing when this process has made none.
  std::optional<optim::Stores> stores() const { return stores_; }

 private:
  /// The slice of this rank, of a share that its node has.
  state::Slice slice_of(int share) const;
  void set_norms(optim::Stores stores);
  std::optional<int> nonfinite_shard(const optim::Arrays& arrays, std::size_t begin, std::size_t end) const;
  void update_pieces(const std::vector<Piece>& pieces, bool copied, optim::Stores stores);
  /// What a step reads and writes in a part of the flat range, which begins at element 0 of the arrays; the optimizer's
  /// are those of the node's share, or of the copy that it has.
  optim::Arrays arrays_of(const state::Part& part, bool copied = false) const;

  FusedState& fused_;
  comm::Group& group_;
  const std::optional<EmaOptions> ema_;
  UpdatePlan plan_;
  std::optional<UpdatePlan> copied_plan_;  ///< of the share that this node has a copy of
  std::vector<Piece> pieces_, copied_pieces_;
  float mean_ = 1;
  float gradient_scale_ = 1;
  float max_value_ = 0;
  optim::StoreChoice store_choice_;
  std::optional<optim::Stores> stores_;
};

}  // namespace lockstep::parallel
