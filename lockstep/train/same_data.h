#pragma once

// Whether all ranks train on the same pictures, and a job that was started again on those it began with. The order of
// an epoch counts entries: one file more, and every sample behind it is another one.

#include "lockstep/comm/group.h"
#include "lockstep/train/input.h"

namespace lockstep::train {

/// Returns `input`. Collective. UsageError on all ranks, naming the first that reads another set than rank 0 and what
/// differs; and when the state that the job's segment holds was trained on another set.
Input checked_input(Input input, comm::Group& group);

/// Keeps in the segment what the state is trained on, for the check above after a restart. Between the making of the
/// state and its first step; rank 0's.
void keep_with_state(const Input& input, comm::Group& group);

}  // namespace lockstep::train
