#pragma once

// The signals that end a job, read from a descriptor instead of interrupting the agent.

#include <csignal>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// Blocks the wanted signals and SIGCHLD and ignores SIGPIPE, for the rest of the process: one that
/// is still pending when the agent has done its work must not decide its exit code. SIGHUP only
/// when it is not ignored: nohup means what it says.
class Signals {
 public:
  explicit Signals(const std::vector<int>& wanted);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Readable when a signal waits.
  int fd() const { return fd_.get(); }
  /// Readable when one of the wanted signals waits, whatever children do. Only to be waited for: it
  /// is read by next().
  int stop_fd() const { return stop_fd_.get(); }
  /// The next signal, or 0.
  int next() const;
  /// For a new worker, between fork and exec: all of this taken back, and the wanted signals neither
  /// blocked nor ignored, whatever the agent was started with (a shell ignores SIGINT for background
  /// jobs): they are to be forwarded.
  void restore_for_worker() const;

 private:
  base::UniqueFd fd_;
  base::UniqueFd stop_fd_;
  sigset_t wanted_{};
  sigset_t before_{};
};

}  // namespace lockstep::launch
