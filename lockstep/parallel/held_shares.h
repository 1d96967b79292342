#pragma once

// What nodes that share out the optimizer's state (DataParallelOptions::zero1) have of it in memory, from an earlier
// attempt of the job. It is of use where it is whole: each node has the share that it is to have, and all are of one
// state. Else a node was lost, and its share with it, or another number of nodes has met: then nobody's counts.

#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

/// Why a state of which the nodes have this is not whole, in words; empty: it is, or no node has any. Pure.
std::string why_not_whole(const std::vector<state::HeldState>& nodes);

/// What each node has of the state of the model of that name. Collective.
std::vector<state::HeldState> held_by_nodes(comm::Group& group, const std::string& name);

/// Whether they have a whole one. Collective.
bool have_whole_state(comm::Group& group, const std::string& name);

/// Forgets, on all nodes, a state that is not whole, so that the next one is filled anew, and returns why; empty where
/// nothing was forgotten. Collective.
std::string forget_unless_whole(comm::Group& group, const std::string& name);

}  // namespace lockstep::parallel
