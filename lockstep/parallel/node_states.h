#pragma once

// The states of a job's nodes, each of which has a copy of its own: they begin with the same one, and take over rank
// 0's edits. docs/design/nodes.md, "Commit".

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
  /// not fit each other. Both must outlive this.
  NodeStates(state::SharedState& state, comm::Group& group);

  /// The nodes, and which ranks they have.
  const NodeRanks& ranks() const { return ranks_; }

  /// Behind an edit of the state by rank 0, committed on its node: makes it that of every node.
  void spread_edit();

 private:
  bool leads() const { return group_.topology().local_rank == 0; }
  int leader_of(int node) const { return ranks_.first(node); }
  void agree();
  void go_back_to(const std::string& wanted);
  void fill_from(int node, const std::vector<bool>& wants);

  state::SharedState& state_;
  comm::Group& group_;
  NodeRanks ranks_;
};

}  // namespace lockstep::parallel
