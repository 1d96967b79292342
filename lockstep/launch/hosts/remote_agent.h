#pragma once

// An agent on another host, as the launcher that has started it sees it: a child process, the remote shell, whose
// output comes home line by line.

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/agent/leash.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/workers/signals.h"

namespace lockstep::launch {

/// A line that does not end for so long is cut.
inline constexpr std::size_t kLongestHomeLine = 64 * 1024;

class RemoteAgent {
 public:
  struct Events {
    /// Whole lines, with their ends; `stream` is 1 or 2.
    std::function<void(int stream, const std::string& lines)> output;
    /// It has ended, with this code or 128 + signal, and nothing more will come of it.
    std::function<void(int code)> ended;
  };

  /// Starts it in a session of its own, for a terminal's Ctrl-C is not its to take; it dies with this thread. Its
  /// limit of descriptors is `descriptors`. Throws
  /// Error when there is no process to be had.
  RemoteAgent(EventLoop& loop, const std::vector<std::string>& command, const Signals& signals,
              const rlimit& descriptors, Events events);
  /// Kills what still lives.
  ~RemoteAgent();
  RemoteAgent(const RemoteAgent&) = delete;
  RemoteAgent& operator=(const RemoteAgent&) = delete;

  /// Writes to its standard input. What does not go at once is lost: some bytes always do.
  void tell(const std::string& line);
  /// Ends its standard input: the agent ends its job.
  void let_go() { input_ = {}; }
  /// The same for one that may be told of signals behind that.
  void let_go_and_hold() { tell(kLetGo); }
  void kill();
  bool over() const { return code_.has_value(); }

 private:
  struct Stream {
    base::UniqueFd fd;
    std::string line;  // what has come of one
    EventLoop::Handle watch;
  };

  void end_now();
  void watch(EventLoop& loop);
  bool read(int number);
  void finish();

  const Events events_;
  pid_t pid_ = -1;
  base::UniqueFd pidfd_, input_;
  std::array<Stream, 2> streams_;
  std::optional<int> code_;
  EventLoop::Handle end_watch_;
};

}  // namespace lockstep::launch
