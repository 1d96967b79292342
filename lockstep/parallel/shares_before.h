#pragma once

// What a job whose nodes share out the optimizer's state goes on from, where they have not the shares in memory that
// they are to have (held_shares.h). Where all shares of a state are there, rank 0 gets all of it, in memory of its own,
// and the state that is made next is filled with that; else with what the job begins with. In either case what the
// nodes had is forgotten: who fails from then on until the new state is published leaves nothing in memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

/// All of a state, in memory of one process.
struct WholeState {
  std::uint64_t step = 0;
  std::array<std::vector<std::byte>, 2> beside_optimizer;  ///< see Layout::beside_optimizer()
  std::vector<std::byte> frozen;
  state::WholeArrays arrays;
};

/// Writes it into a fresh state, as a Fill does.
std::uint64_t fill_with(WholeState whole, state::SharedState& fresh);

struct SharesBefore {
  std::string why;                  ///< the shares are not in place; empty: they are, or there are none
  bool brought_together = false;    ///< from where they were
  std::optional<WholeState> whole;  ///< then, on rank 0
};

/// Looks for the state of the model of that name, of which `layout` is to have a share here. Where the shares are not
/// in place, they are brought together, if all are there, and forgotten on all nodes. Collective. Error when one that
/// counts is of another layout.
SharesBefore take_shares(comm::Group& group, const state::Layout& layout, const std::string& name);

/// What that has come to, in words for the user, when the new state is at `step`; `restored`: by what the job begins
/// with, which is a checkpoint mostly.
std::string text_of_shares(const SharesBefore& before, std::uint64_t step, bool restored);

}  // namespace lockstep::parallel
