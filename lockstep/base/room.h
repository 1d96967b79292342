#pragma once

// Room for a node that has come, behind a step: the agents ask for it, the ranks agree on the step in its record
// (state/step_record.h), and end their generation there, by no failure. Words of the control page, and no signal: that
// would kill who does not listen, and make those who do save.

#include <cstdint>

#include "lockstep/base/control_page.h"

namespace lockstep::base {

/// Asks the ranks of the page's generation. False, and nobody is asked, where none of the page's states is theirs: they
/// make no steps, or not yet. For the agent.
bool ask_for_room(ControlPage& page);

/// Whether the ranks of `generation` are asked.
bool is_room_wanted(const ControlPage& page, std::uint32_t generation);

/// Ends `generation` for that: its waits throw GroupAborted from now on, with the exit code kExitStopped. Unless a
/// failure was first. When all ranks on all nodes have committed the step.
void make_room(ControlPage& page, std::uint32_t generation);

/// Whether this is what make_room() has said.
bool makes_room(const Failure& failure);

/// Whether the page's generation was ended so.
bool has_made_room(const ControlPage& page);

}  // namespace lockstep::base
