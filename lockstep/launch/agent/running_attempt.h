#pragma once

// One attempt of a job: all workers, from the start of the first to the end of the last process in their groups, and
// where their output goes. It registers with the agent's event loop and does nothing between two events
// (docs/design/launch.md).

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/control_page.h"
#include "lockstep/base/outlet.h"
#include "lockstep/launch/agent/stages.h"
#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/output/attempt_logs.h"
#include "lockstep/launch/plan.h"
#include "lockstep/launch/report/inquiry.h"
#include "lockstep/launch/report/job_report.h"
#include "lockstep/launch/report/out_of_memory.h"
#include "lockstep/launch/workers/reaper.h"
#include "lockstep/launch/workers/refusal.h"
#include "lockstep/launch/workers/signals.h"
#include "lockstep/launch/workers/workers.h"

namespace lockstep::launch {

/// What outlives an attempt.
struct AttemptContext {
  EventLoop& loop;
  const Plan& plan;
  base::ControlPage& page;
  const Signals& signals;
  Reaper& reaper;
  OutOfMemoryWatch& out_of_memory;
  base::Outlet& console;          ///< where the agent speaks
  const std::string& run_folder;  ///< for log files; empty: none
  rlimit descriptors{};           ///< RLIMIT_NOFILE of the workers
  /// Says who failed first on this node, in the words of report().
  std::function<void(const Verdict& verdict, const std::string& report)> on_failure;
};

struct AttemptResult {
  AttemptRecord record;
  int code = 0;                         ///< what the job would exit with now
  int stop_signal = 0;                  ///< the signal that asked the agent to end the job
  bool never_ran = false;               ///< the program could not be executed; start_failure says why
  std::string start_failure;            ///< why not all workers could be started
  bool cut_short = false;               ///< somebody would not wait for the grace period
  bool left_behind = false;             ///< some process could not be killed
  std::chrono::milliseconds uptime{0};  ///< from the start to the first failure
};

class RunningAttempt {
 public:
  /// Starts the log router and the workers. What keeps a worker from being started is in the result; the rest (no
  /// folder for the logs, no descriptors) throws UsageError, Error.
  RunningAttempt(const AttemptContext& context, const Attempt& attempt);
  RunningAttempt(const RunningAttempt&) = delete;
  RunningAttempt& operator=(const RunningAttempt&) = delete;

  /// Somebody wants the job to end. Not when it is over.
  void on_stop(int signal);
  /// Another node has failed: the workers here are told to end; at once: they are killed, for it may go on without
  /// them.
  void end_for_others(bool at_once);
  /// Another node has come: the workers here are asked to end behind their step, which is no failure of theirs; those
  /// that have not a grace period after it are told to end. False, and nothing happens, where they make none.
  bool make_room();
  /// Some child of the agent's has ended and is buried, or is a worker.
  void on_child_end() { workers_.look_for_gone(); }

  /// No process is left in any worker's group.
  bool over() const { return workers_.all_gone(); }
  /// Whether it asks itself for the end of this process.
  bool awaits(pid_t pid) const { return pid == logs_.router_pid() || workers_.awaits(pid); }

  /// Once it is over, and once.
  AttemptResult take_result();
  /// For their end, which comes after that of the workers.
  AttemptLogs& logs() { return logs_; }

 private:
  void start();
  std::optional<Refusal> start_workers();
  void on_worker_end(const End& end);
  void on_router_end();
  bool more_to_come() const;
  void follow(const Orders& orders);
  void conclude(Verdict first);

  const AttemptContext context_;
  const Attempt attempt_;
  const EventLoop::Clock::time_point started_ = EventLoop::Clock::now();
  AttemptLogs logs_;
  Inquiry inquiry_;
  Stages stages_;
  AttemptResult result_;
  Workers workers_;
  EventLoop::Handle router_watch_;
  EventLoop::Handle deadline_;
  EventLoop::Handle room_watch_;
};

}  // namespace lockstep::launch
