#pragma once

// Flags of `lockstep train` that only the process that starts the workers can heed.

#include <string>

#include "lockstep/train/options.h"

namespace lockstep::train {

/// For a worker that our launcher has not started: refuses the flags that only `lockstep train` as the launcher heeds,
/// --max-restarts (unless 0), those of LauncherOptions, and --nproc-per-node, unless that stands in a file and
/// `launcher` has a number of its own. `launcher` is who has started its `world_size` processes, "alone": nobody.
/// Throws UsageError.
void require_no_launcher_flags(const Options& options, const std::string& launcher, int world_size);

}  // namespace lockstep::train
