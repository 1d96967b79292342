#pragma once

// Flags of PyTorch's scripts that ask for what holds here anyway.

#include "lockstep/flags/table.h"

namespace lockstep::train {

/// Each is taken with what says so and refused with anything else; none is kept.
flags::Group script_flags();

}  // namespace lockstep::train
