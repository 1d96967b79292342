#pragma once

// Why the generation before this one ended, for whoever tells of restarts.

#include <optional>

#include "lockstep/base/control_page.h"

namespace lockstep::base {

/// The failure that the last generation has left in the error slot. Nothing where it ended without one, or to make room
/// (room.h), where its writer died halfway, or when this generation has failed in its turn, for then the slot is its
/// own. Any process, any time: the earlier the likelier.
std::optional<Failure> last_failure(ControlPage& page);

}  // namespace lockstep::base
