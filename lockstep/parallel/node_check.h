#pragma once

// Whether the nodes of a job have the same state, where each updates a copy of its own: by the same arithmetic on the
// same gradients, but two C libraries or processors may differ in the last bits of what a rule asks them for, and
// memory may fail.
//
// In the step behind every so many each rank hashes its slice of the node's copy, and tells it in the record of its
// first shard, which travels to all nodes anyway. So all ranks know at the same place of the step whether the copies
// are equal, and nothing waits for it. Only where they are not, the hashes of single parameters travel, too.

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/fused_state.h"
#include "lockstep/state/shared_state.h"
#include "lockstep/state/step_record.h"

namespace lockstep::parallel {

/// What local rank `rank` of `ranks` adds, by exclusive or, to the hash of the state in `buffer`: of the parameters,
/// frozen ones too, and of what optimizer and average keep for each. The whole is the same for any number of ranks and
/// in any buffer; padding does not count, nor the optimizer's state where each node has a share of its own.
std::uint64_t part_of_hash(const state::SharedState& state, int buffer, int rank, int ranks);

/// The hash of one thing in a state, and what it is, in words.
struct NamedHash {
  std::string name;
  std::uint64_t hash = 0;
};

/// The values of each parameter, frozen ones behind the trained ones; behind them the optimizer's state and the average
/// of each, where there are any.
std::vector<NamedHash> hashes_by_parameter(const state::SharedState& state, int buffer);

class NodeCheck {
 public:
  /// `every`: DataParallelOptions::verify_replicas_every. The others must outlive this.
  NodeCheck(const FusedState& fused, comm::Group& group, std::uint64_t every);

  /// This rank's part, when the records of its shards are in their places and before they travel.
  void tell() const;

  /// Behind the exchange, on all ranks, by the records of all shards: which node has what else than the others, in
  /// words; empty where the copies are equal, and in steps that do not compare them. Collective.
  std::string find(const std::vector<const state::ShardRecord*>& records) const;

 private:
  bool is_due() const;
  std::string name_diverged() const;

  const FusedState& fused_;
  comm::Group& group_;
  const std::uint64_t every_;
};

}  // namespace lockstep::parallel
