#pragma once

// Advice that a run gives beside its results. Pure functions.

#include <string>

namespace lockstep::train {

/// What to say when a run of `processes` with `threads` each leaves some of the `cores` idle:
/// one line, or nothing when it does not.
std::string idle_cores_hint(int processes, int threads, int cores);

/// What to say where pictures meet convolutions: one line, or nothing when the run is channels-last already or has
/// no convolutions.
std::string channels_last_hint(bool convolutions, bool channels_last);

}  // namespace lockstep::train
