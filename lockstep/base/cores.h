#pragma once

// How many cores this process may use.

namespace lockstep::base {

/// Cores of this process: its affinity, cut by the processor limits of its control groups
/// (rounded up). At least 1.
int usable_cores();

/// The cores of this thread's affinity, which the process's threads inherit. At least 1.
int affinity_cores();

}  // namespace lockstep::base
