#pragma once

// The worker processes of one attempt, each with what it has started in its process group.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/launch/event_loop.h"
#include "lockstep/launch/report/verdict.h"
#include "lockstep/launch/workers/reaper.h"
#include "lockstep/launch/workers/spawn.h"

namespace lockstep::launch {

/// A worker is known by its local rank. It has ended when its process has; it is gone when its process group is empty,
/// too. Before it is started it is both.
class Workers {
 public:
  /// `tell_end` is called by the loop once for each worker that ends, in the order in which they end.
  Workers(EventLoop& loop, Reaper& reaper, int count, std::function<void(const End&)> tell_end);
  /// Kills what is left.
  ~Workers() { kill_all(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Starts one (spawn.h); its failure to run is in the answer. Throws Error when no process can be made.
  ExecFailure start(int rank, const std::string& program, const std::vector<std::string>& arguments,
                    const Environment& environment, const SpawnContext& context);

  /// Sends `signal` to all process groups, and SIGCONT, for stopped processes in them to wake up and take it. A worker
  /// that is stopped itself would sleep through it and is killed.
  void end_all(int signal);
  void kill_all();
  /// Takes those that are not gone for gone, though they live on; returns their process groups.
  std::vector<pid_t> abandon_all();

  /// Looks which workers are gone now. To be called when some child of this process has ended: no other event tells
  /// that a group is empty.
  void look_for_gone();

  bool all_ended() const;
  bool all_gone() const;
  /// Whether some worker that has not been seen to end is about to.
  bool somebody_is_dying() const;
  /// Whether it is a worker whose end was not seen yet.
  bool awaits(pid_t pid) const;

 private:
  struct Worker {
    Process process;
    EventLoop::Handle watch;
    bool ended = true;
    bool gone = true;
  };

  void on_end(int rank);
  static void send(const Worker& worker, int signal);

  EventLoop& loop_;
  Reaper& reaper_;
  const std::function<void(const End&)> tell_end_;
  std::vector<Worker> workers_;
};

}  // namespace lockstep::launch
