#pragma once

// Advice that a run gives beside its results. Pure functions.

#include <string>

namespace lockstep::train {

/// What to say when a run of `processes` with `threads` each leaves some of the `cores` idle:
/// one line, or nothing when it does not.
std::string idle_cores_hint(int processes, int threads, int cores);

}  // namespace lockstep::train
