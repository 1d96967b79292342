#pragma once

// A lock (flock) whose file says on which machine its holder runs. A server of files (NFS, a cluster's) lets go of the
// lock of a machine that is gone only after its lease, a minute and a half perhaps: what is locked so long is no sign
// of a program that is alive, unless that is on this machine.

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/base/unique_fd.h"

namespace lockstep::base {

/// More than the lease of a server that was told of none.
inline constexpr std::chrono::milliseconds kLostMachine{120'000};

enum class LockEnd {
  locked,
  refused,         ///< by the system; errno says why
  held,            ///< by a living program; without patience by whatever machine
  held_elsewhere,  ///< by another machine, longer than the patience
  held_unsigned,   ///< by who has not signed, longer than the patience
  stopped,         ///< as one of these, and a signal asks this program to end (base/stop_on.h)
};

/// Waits two seconds at most for a process that is dying, and with `patience` so long in all for a holder on another
/// machine, or until a signal that a StopOn listens to, which is told once on standard error in a line that begins with
/// `place`. Who has not signed may be on another machine, too, whose disk was full: to wait for a living one costs a
/// while, to take a lost one for a living one costs its job. Any thread.
LockEnd lock_of_machine(const UniqueFd& file, std::optional<std::chrono::milliseconds> patience,
                        const std::string& place);

/// For the holder of the lock: from now on the file, which is open for writing, names this machine, or nobody where the
/// disk does not take it.
void sign_lock(const UniqueFd& file);

}  // namespace lockstep::base
