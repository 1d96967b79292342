#pragma once

// What the kernel is doing with a process, from /proc.

#include <sys/types.h>

#include <string>

namespace lockstep::launch {

struct ProcessState {
  char letter = 0;        ///< 'R', 'S', 'T', 'Z' …; 0: there is no such process
  bool exiting = false;   ///< the kernel is taking it apart
  bool must_die = false;  ///< a SIGKILL waits for it

  /// It would sleep through SIGTERM.
  bool is_stopped() const { return letter == 'T' || letter == 't'; }
  /// It is about to end, or has ended and nobody has asked yet.
  bool is_dying() const { return letter == 'Z' || letter == 'X' || exiting || must_die; }
};

/// From the texts of `/proc/<pid>/stat` and `/proc/<pid>/status`. Pure function.
ProcessState parse_process_state(const std::string& stat, const std::string& status);

ProcessState process_state(pid_t pid);

}  // namespace lockstep::launch
