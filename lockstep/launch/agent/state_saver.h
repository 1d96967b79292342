#pragma once

// What the agent does for a job that ends without success: the committed state is in its segment still, and where the
// program has said how (base/published_text.h, checkpoint/store/state_plan.h), a process saves it before the agent
// ends. A process, since a disk may stand still.

#include <chrono>

#include "lockstep/base/outlet.h"
#include "lockstep/base/segment.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/workers/spawn.h"

namespace lockstep::launch {

/// For a state of 100 GB and a disk that writes 200 MB a second.
inline constexpr std::chrono::milliseconds kSaveState{600'000};

class StateSaver {
 public:
  StateSaver(EventLoop& loop, base::Outlet& console) : loop_(loop), console_(console) {}

  /// Has plan.state_saver save what the last attempt has committed, whose workers have all ended; it tells the outcome
  /// itself. Nothing to do where no program wants that. Waits for it: until hurry(), or for kSaveState; then it is
  /// ended, and that is said; one that does not end of SIGKILL within kDeathWait (its disk stands still) is left
  /// behind. What keeps it from being started is said, too.
  void save(base::Segment& segment, const Plan& plan, const SpawnContext& context);

  /// Somebody does not want to wait. Of no meaning before save().
  void hurry() { hurried_ = true; }

  /// Whether this asks itself for the end of the process.
  bool awaits(pid_t pid) const { return process_.pid == pid; }

 private:
  EventLoop& loop_;
  base::Outlet& console_;
  Process process_;
  bool hurried_ = false;
};

}  // namespace lockstep::launch
