#pragma once

// The job's reaper: a tiny process that kills what is left of the workers' process groups
// when the agent dies without being able to (SIGKILL).
//
// It holds the read end of a pipe; the agent holds the write end, and every worker has it
// between fork and exec. Through it come the process groups: a worker announces its own
// before it runs anything, so there is no instant at which a group is unknown. End of file
// means that the agent is gone. The reaper sleeps in poll() and ends with the pipe: it
// cannot outlive the job.
//
// The agent passes on its connections to other agents, too. When it is gone the reaper ends
// them as one who closes: the kernel would say with a reset that something was unread, which
// says nothing of the workers, for a firewall does that, too.

#include <sys/types.h>

#include <chrono>

#include "lockstep/base/unique_fd.h"

namespace lockstep::launch {

class Reaper {
 public:
  /// Starts the process. Throws Error.
  Reaper();
  /// Ends it; nothing is killed any more.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  pid_t pid() const { return pid_; }
  /// Readable when the process has ended: somebody has killed it, and nobody does its work any more.
  int pidfd() const { return pidfd_.get(); }
  /// Where a worker writes its process group, a native int above 0.
  int pipe() const { return pipe_.get(); }
  /// Kills all groups after this time, unless it is told another before: this process may be stopped then. The machine
  /// may sleep meanwhile: that counts, and they are killed when it wakes.
  void kill_after(std::chrono::milliseconds time);
  /// The connection (TCP) ends as one that is closed when this process is gone, whatever is unread in it then, and not
  /// before the groups are killed. Whoever ends it before shuts it down for both ways: closing this descriptor is not
  /// enough. Does not wait.
  void hold(int connection);
  /// Says that the group is gone: its number may belong to others from now on.
  void forget(pid_t group);

 private:
  base::UniqueFd pipe_;
  base::UniqueFd connections_;  // through which they are passed on
  base::UniqueFd pidfd_;
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch
