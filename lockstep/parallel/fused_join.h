#pragma once

// Engine::join() with an optimizer of ours: a rank without inputs makes the steps of the others with gradients of 0, by
// the rules and options of one that has inputs, which knows the learning rate of the step.

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/comm/group.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/shard_session.h"
#include "lockstep/parallel/step_transaction.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {

class FusedJoin {
 public:
  /// All of them must outlive this.
  FusedJoin(FusedState& fused, ShardSession& session, StepTransaction& step, std::shared_ptr<comm::Group> group,
            StepClock& clock)
      : fused_(fused), session_(session), step_(step), group_(std::move(group)), clock_(clock) {}

  /// Collective. UsageError within another join().
  void join(const std::function<void()>& loop, const JoinOptions& options);

  /// StepTransaction::run(), which within join() those without inputs follow. UsageError there for a loss that is
  /// scaled by another than JoinOptions::scaler.
  void step(const optim::Rules& rules, const optim::StepOptions& options);

 private:
  void check_scale(const optim::StepOptions& options) const;
  optim::LossScale scale_of_this_rank() const;
  optim::Rules share(const optim::Rules* mine, optim::StepOptions& options);
  void follow_the_others();

  FusedState& fused_;
  ShardSession& session_;
  StepTransaction& step_;
  std::shared_ptr<comm::Group> group_;
  StepClock& clock_;
  std::optional<UnevenInputs> inputs_;  ///< within join()
};

}  // namespace lockstep::parallel
