#pragma once

// The states of a job's nodes, each of which has a copy of its own: they begin with the same one, and take over rank
// 0's edits. Of the optimizer's state each may have a share only (DataParallelOptions::zero1), which it keeps: what the
// nodes compare and send each other is the rest. docs/design/nodes.md, "Commit" and "Shares".

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/exchange_plan.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class NodeStates {
 public:
  /// Collective over all ranks, and so is everything here. Makes the states of all nodes one: the oldest step that a
  /// node of the last attempt has; who has another state gets that of the first node that has it. Error when they do
  /// not fit each other. Where the optimizer's state is shared out, either no node has a state from before or all have
  /// the shares of one that they are to have (take_shares). Both must outlive this.
  NodeStates(state::SharedState& state, comm::Group& group);

  /// The nodes, and which ranks they have.
  const NodeRanks& ranks() const { return ranks_; }

  /// Behind an edit of the state by rank 0, committed on its node: makes it that of every node.
  void spread_edit();

  /// Before the first step and edit: goes back by one step, to `step`, on every node. An attempt that ended while it
  /// started may have left this state ahead of another one of the same program (commit_together). False, and nothing
  /// has happened, where there is nothing to go back from, or no node of the last attempt has `step` any more.
  bool go_back(std::uint64_t step);

 private:
  bool leads() const { return group_.topology().local_rank == 0; }
  int leader_of(int node) const { return ranks_.first(node); }
  void agree();
  void go_back_to(const std::string& wanted, std::uint64_t step);
  void fill_from(int node, const std::vector<bool>& wants);
  void require(const std::string& wanted, int from) const;
  void require_share_of(std::uint64_t step) const;
  void hand_out_shares();
  bool in_shares() const { return state_.layout().options().shares > 1; }
  std::string hash() const { return state_.common_hash(int(state_.committed().buffer)); }
  std::vector<int> buffers_before(std::uint64_t step) const;

  state::SharedState& state_;
  comm::Group& group_;
  NodeRanks ranks_;
  std::uint64_t agreed_ = 0;          ///< the step that all began with
  bool was_in_last_attempt_ = false;  ///< this node, of those that have a state from before
  bool edited_ = false;               ///< since then
};

}  // namespace lockstep::parallel
