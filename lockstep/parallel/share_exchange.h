#pragma once

// What nodes that share out the optimizer's state send each other behind the sums of gradients (exchange_plan.h): each
// updates what its share of the state is of, and the others get the new weights. Sums over blocks of gradients, for a
// norm, are made by who has the gradients, and go to everybody.

#include <cstdint>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/exchange_plan.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

class ShareExchange {
 public:
  /// Both must outlive this.
  ShareExchange(const state::SharedState& state, comm::Group& group, const NodeRanks& ranks);

  /// When this rank has updated its slice of its node's share in state buffer `to`: brings that to the other nodes, and
  /// to this rank's places what theirs have updated. Collective.
  void share_weights(std::uint64_t step, int to) const;

  /// What comes so, in ranges of the flat range, each of one part of it.
  const std::vector<state::Slice>& received() const { return received_; }

  /// By each local rank 0, when the ranks of its node have written the block sums of their slices: brings those of all
  /// shares to everybody.
  void share_block_sums(std::uint64_t step) const;

 private:
  const state::SharedState& state_;
  comm::Group& group_;
  const NodeRanks ranks_;
  const std::vector<ExchangePiece> pieces_;  ///< whose owner sends the weights
  std::vector<state::Slice> received_;
};

/// The first rank of each node. Collective.
std::vector<int> leaders_of(comm::Group& group);

/// The committed arrays of the optimizer, whole, on rank 0, made of the shares of all nodes; empty on the others, and
/// where there is one share. Collective; between steps. The memory is as much as all shares have.
state::WholeArrays gather_arrays(const state::SharedState& state, comm::Group& group);

}  // namespace lockstep::parallel
