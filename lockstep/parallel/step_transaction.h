#pragma once

// One step of the fused path, from the gradients in the slots to the committed state. docs/design/step.md walks through
// it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/store_choice.h"
#include "lockstep/optim/update.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/shard_session.h"
#include "lockstep/parallel/update_plan.h"

namespace lockstep::parallel {

class StepTransaction {
 public:
  StepTransaction(FusedState& fused, ShardSession& session, comm::Group& group);

  /// Collective. Error on all ranks, with nothing written, for a norm that the options refuse. Error on this rank alone
  /// when one of its backward passes broke: the others wait until it has mended that. Any other failure of a rank is
  /// the group's.
  void run(const optim::Rules& rules, const optim::StepOptions& options);

  /// How this rank's slice was written in the last step; nothing when this process has made none.
  std::optional<optim::Stores> stores() const { return stores_; }

 private:
  void gather(std::optional<double> denominator);
  void exchange();
  void set_mean();
  void choose_pieces();
  double gradient_norm(double p);
  [[noreturn]] void refuse(const std::string& why);
  std::string first_nonfinite() const;
  void update(float gradient_scale, float max_value);
  void write_record(double gradient_norm);
  void vote();
  void flip();
  state::Slice my_slice() const;
  /// What a step reads and writes in a part of the flat range, which begins at element 0 of the arrays.
  optim::Arrays arrays_of(const state::Part& part) const;

  FusedState& fused_;
  ShardSession& session_;
  comm::Group& group_;
  base::Member& member_;
  UpdatePlan plan_;
  std::vector<bool> used_;  ///< by parameter: whether any shard of the step has a gradient of it
  std::vector<Piece> pieces_;
  float mean_ = 1;  ///< by which the step multiplies sums of gradients
  optim::StoreChoice store_choice_;
  std::optional<optim::Stores> stores_;
};

}  // namespace lockstep::parallel
