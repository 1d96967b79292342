#pragma once

// Orphans of the workers are children of the agent, which is a subreaper.

#include <sys/types.h>

#include <functional>

namespace lockstep::launch {

/// Buries the children of the process's main thread that have ended, so that they neither pile up nor keep their
/// process group in being; but none of which `is_awaited` says that somebody else asks for its end. Does not wait.
void bury_orphans(const std::function<bool(pid_t)>& is_awaited);

}  // namespace lockstep::launch
