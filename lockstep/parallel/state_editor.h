#pragma once

// Between steps: edits of the committed state, and its hash.

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/shard_session.h"

namespace lockstep::parallel {

class StateEditor {
 public:
  StateEditor(FusedState& fused, ShardSession& session, GradientHooks& hooks, comm::Group& group);

  /// Runs fn() on rank 0 and makes what it leaves, and what owners keep, everybody's in one commit of the same step.
  /// Collective; see Engine::modify().
  void modify(const std::function<void()>& fn);

  /// Over several nodes, or on the one that is left of them, and before the first step or edit: the committed state is
  /// that of `step` from now on, where it is the one before and still there (NodeStates::go_back). Collective.
  void go_back(std::uint64_t step);

  /// XXH3-128 of all that is committed.
  std::string hash() const;

 private:
  bool go_back_alone(std::uint64_t step);
  void refuse_in_mid_step() const;
  void edit(const std::function<void()>& fn);
  void end_edit();

  FusedState& fused_;
  ShardSession& session_;
  GradientHooks& hooks_;
  comm::Group& group_;
  const std::uint64_t began_with_;  ///< the step
  bool edited_ = false;             ///< since then
};

}  // namespace lockstep::parallel
