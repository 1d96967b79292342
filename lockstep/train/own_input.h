#pragma once

// The input of a set whose samples are a program's own tensors.

#include "lockstep/train/additions.h"
#include "lockstep/train/input.h"

namespace lockstep::train {

/// What `set` opens for options.data_path and options.seed; the part to evaluate on where the run `evaluates`.
/// UsageError when it opens nothing, when a part has no samples, or the first one's target is not as OwnSet says.
Input make_own_input(const Options& options, const OwnSet& set, bool evaluates);

/// How options.dataset opens the part `split`.
Opening opening_of(const Options& options, data::Split split);

}  // namespace lockstep::train
