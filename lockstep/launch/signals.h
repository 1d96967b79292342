#pragma once

// The signals that end a job, read from a descriptor instead of interrupting the agent.

#include <csignal>
#include <vector>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

/// Blocks the wanted signals and SIGCHLD (and SIGPIPE) for its life. SIGHUP only when it is not
/// ignored: nohup means what it says.
class Signals {
 public:
  explicit Signals(const std::vector<int>& wanted);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Readable when a signal waits.
  int fd() const { return fd_.get(); }
  /// The next signal, or 0.
  int next() const;
  /// What was blocked before, for the workers.
  const sigset_t& mask_before() const { return before_; }

 private:
  base::UniqueFd fd_;
  sigset_t before_{};
};

}  // namespace lockstep::launch
