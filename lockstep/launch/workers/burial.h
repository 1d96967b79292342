#pragma once

// The end of a child of the agent that has been killed. Who is stuck in the kernel, as with a disk that stands still,
// does not die of SIGKILL, and the agent must not wait for that.

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace lockstep::launch {

/// Only a process that is stuck takes longer to die.
inline constexpr std::chrono::milliseconds kDeathWait{1'000};

/// Takes the status of the child, as waitpid() gives it, when it has ended; waits for that at most so long, and blocks
/// meanwhile. None: it has not, and is left behind, or it is no child of this process.
std::optional<int> bury(pid_t pid, std::chrono::milliseconds at_most);

}  // namespace lockstep::launch
