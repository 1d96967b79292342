#pragma once

// What nodes that share out the optimizer's state (DataParallelOptions::zero1) have of it in memory, from an earlier
// attempt of the job. Where each has the share that it is to have, and all are of one state, the job goes on as it is.
// Where the shares are all there, but with other nodes than are to have them, they can be brought together. Else a
// share is lost, with its node, and nobody's counts.

#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

/// Whether these two, of one list, are shares of one state; what is all of a state is so with itself alone.
bool are_of_one(const state::HeldState& one, const state::HeldState& other);

/// Why nodes that have this have not all the shares that they are to have, in words; empty: they have, or none has any.
/// Pure.
std::string why_not_in_place(const std::vector<state::HeldState>& nodes);

/// From which node each share of a state can be had, by share; empty: of none all shares are there. Of several states
/// the one counts from which more attempts of the job have gone on. Pure.
std::vector<int> holders_of_all(const std::vector<state::HeldState>& nodes);

/// What each node has of the state of the model of that name. Collective.
std::vector<state::HeldState> held_by_nodes(comm::Group& group, const std::string& name);

}  // namespace lockstep::parallel
