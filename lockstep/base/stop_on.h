#pragma once

// Signals that ask a job to end in good order: a scheduler that wants its machine back sends one some time before it
// kills. What follows from them is agreed by all ranks (Engine::should_stop).

#include <csignal>
#include <vector>

namespace lockstep::base {

/// While it lives, `signals` no longer end this process but are remembered. One at a time, in the main thread; the
/// handlers that were there come back with its end.
class [[nodiscard]] StopOn {
 public:
  /// UsageError when there is one already, or when a signal cannot be caught.
  explicit StopOn(const std::vector<int>& signals);
  ~StopOn();
  StopOn(const StopOn&) = delete;
  StopOn& operator=(const StopOn&) = delete;

  /// Whether one has come, to whatever thread of this process. Any thread.
  static bool requested();

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  void restore();

  std::vector<Before> before_;
};

}  // namespace lockstep::base

namespace lockstep {
using base::StopOn;
}  // namespace lockstep
