#pragma once

// The lock of a run directory: two living processes never write one folder.

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/machine_lock.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep::metrics {

/// Who comes to a folder.
enum class Coming {
  first,  ///< what stands in the way is wrong use: it may choose another folder
  again,  ///< the job was there before, or resumes there: it has no other one, and the next start may do better
};

/// Held from its construction on by this process alone, for the metrics and for whatever else a run keeps in its
/// folder. The kernel lets go of it when the process ends, however it ends; a child that it forks closes the file, and
/// keeps nobody out. A server (NFS) lets go of the lock of a machine that is gone only after its lease, a minute and a
/// half perhaps: so the file says on which machine its holder runs. It (kRunLockName) stays where it is: who removed it
/// would let two processes hold two files of one name.
class RunLock {
 public:
  /// Waits two seconds at most, for a process that is dying; who comes again, and finds a holder on another machine,
  /// or one that says no machine, for its patience, or until a StopOn's signal, which is told on standard error.
  /// UsageError naming the folder: a living one has the lock, its file system has no locks, the folder cannot be
  /// written. For who comes again an Error: the folder cannot be written, or such a holder's lock has not ended.
  explicit RunLock(const std::string& folder, Coming coming = Coming::first,
                   std::chrono::milliseconds patience = base::kLostMachine);

 private:
  std::shared_ptr<base::UniqueFd> file_;  // closed in children
};

/// Throws what the system refuses of a folder, naming it: UsageError, or Error for who comes again.
[[noreturn]] void refuse_folder(const std::string& folder, Coming coming, const std::string& why);

inline constexpr const char* kRunLockName = "run.lock";

}  // namespace lockstep::metrics
