#pragma once

// The lock of a run directory: two living processes never write one folder.

#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::metrics {

/// Held from its construction on by this process alone, for the metrics and for whatever else a run keeps in its
/// folder. The kernel lets go of it when the process ends, however it ends, so there are no stale locks. The file
/// (kRunLockName) stays where it is: who removed it would let two processes hold two files of one name.
class RunLock {
 public:
  /// Waits two seconds at most, for a process that is dying. UsageError naming the folder: a living one has the lock,
  /// the folder cannot be written, its file system has no locks.
  explicit RunLock(const std::string& folder);

 private:
  base::UniqueFd file_;
};

inline constexpr const char* kRunLockName = "run.lock";

}  // namespace lockstep::metrics
