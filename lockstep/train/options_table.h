#pragma once

// The flags of `lockstep train`, a row each. A new flag is a row here, beside the member of Options that it sets.

#include "lockstep/flags/table.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// The table that reads and writes `options`.
flags::Table table_of(Options& options);

}  // namespace lockstep::train
