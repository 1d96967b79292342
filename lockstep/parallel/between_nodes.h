#pragma once

// What the nodes of a job do for their states to be one: they begin with the same and take over rank 0's edits
// (node_states.h), and exchange the gradients of each step (node_exchange.h), and the weights, where each updates a
// share of them (share_exchange.h). The commit of a step is each node's own:
// nodes differ by one step at most, and none overwrites a step before all have the next one, for the gradients of a
// step come from those that have committed the one before. docs/design/nodes.md.

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/parallel/exchange_plan.h"
#include "lockstep/parallel/node_exchange.h"
#include "lockstep/parallel/node_states.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/share_exchange.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class BetweenNodes {
 public:
  /// Collective over all ranks, and so is everything here. Makes the states of all nodes one, see NodeStates. The
  /// gradients of a step go out in waves, see waves_of(), and are added up as the options say.
  BetweenNodes(state::SharedState& state, comm::Group& group, const DataParallelOptions& options);

  NodeStates& states() { return states_; }

  /// When all ranks of the node have their gradients, uses and records in their places: brings those of all nodes'
  /// shards to theirs, and the sums of all gradients. Behind it the node's ranks wait for each other.
  void exchange(std::uint64_t step);
  /// What makes each exchange of a step, for who does so beside the program.
  NodeExchange& carrier() { return exchange_; }
  /// What follows the update where the nodes share out the optimizer's state; null: each has all of it.
  const ShareExchange* shares() const { return shares_.get(); }

  /// By each local rank 0, behind the exchange: rank 0's module buffers and kept bytes, as they are in its state buffer
  /// `to`, for everybody's.
  void share_rank_zeros(std::uint64_t step, int to);

  /// The nodes, and which ranks they have.
  const NodeRanks& ranks() const { return states_.ranks(); }

  /// What a step sends, in words.
  std::string traffic() const { return describe_traffic(state_.layout(), ranks(), exchange_.waves(), sums_); }

 private:
  const state::SharedState& state_;
  comm::Group& group_;
  comm::Wire& wire_;
  const SumOptions sums_;
  NodeStates states_;
  NodeExchange exchange_;
  std::unique_ptr<ShareExchange> shares_;
};

}  // namespace lockstep::parallel
