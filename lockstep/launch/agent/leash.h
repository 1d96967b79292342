#pragma once

// What ties an agent to the launcher that has started it from another host (hosts/starter.h): its standard input. First
// comes the job's key, then signals by number, a line each; when it ends, or 0 comes, so does the agent's job.

#include <functional>
#include <string>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/event_loop.h"

namespace lockstep::launch {

/// Ends the job as the end of the leash does, where signals may still follow.
inline constexpr const char* kLetGo = "0\n";

/// Takes the standard input, which becomes /dev/null for the workers, and reads the first line; for a minute at most.
struct LeashStart {
  base::UniqueFd leash;
  std::string first_line;  ///< without its end
};
LeashStart take_leash();

class Leash {
 public:
  /// `on_signal` is called with each signal that comes, `on_end` once, when it ends or kLetGo comes. `fd` stays the
  /// caller's.
  Leash(EventLoop& loop, int fd, std::function<void(int signal)> on_signal, std::function<void()> on_end);
  Leash(const Leash&) = delete;
  Leash& operator=(const Leash&) = delete;

 private:
  void read();
  void end();

  const int fd_;
  const std::function<void(int signal)> on_signal_;
  std::function<void()> on_end_;  // none: it was called
  std::string line_;
  EventLoop::Handle watch_;
};

}  // namespace lockstep::launch
