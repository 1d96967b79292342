#pragma once

// Two living programs never save to one folder: their links and what they let stay would be each other's.

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/base/machine_lock.h"

namespace lockstep::checkpoint {

/// Stays in the folder: who removed it would let two programs hold two files of one name.
inline constexpr const char* kFolderLockName = ".lock";

/// Has no other program save to `folder`, which is made where there is none, until this process ends, however it ends.
/// For all of this process: what it has already is not asked for again, nor by a child that it forks, which keeps
/// nobody out when this process is gone. UsageError when another one that is living has the folder; one that is dying,
/// as of the start of the job before this one, is waited for, two seconds at most; with `patience` one on another
/// machine, or that names none, so long, for it may be gone (base/machine_lock.h), and Error when it still has the
/// folder then. Where the system refuses folder, file or lock it holds nothing: who writes there is told why by the
/// same system. Any thread.
void hold_folder(const std::string& folder, std::optional<std::chrono::milliseconds> patience = base::kLostMachine);

}  // namespace lockstep::checkpoint
