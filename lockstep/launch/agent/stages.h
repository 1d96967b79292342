#pragma once

// How an attempt comes to its end, as a state machine: no clock, no process, only what follows from what.
//
//   running -> (last words ->) ending -> killing

#include <chrono>
#include <optional>

namespace lockstep::launch {

enum class Stage {
  running,     ///< until a worker fails, a signal comes, or all have ended
  last_words,  ///< one has failed, but another may have failed before it, and gets a moment to say so
  ending,      ///< all have been told to end
  killing,     ///< all have been killed
};

/// How long a worker that has told its failure may take to print it and end by itself.
inline constexpr std::chrono::milliseconds kLastWords{2'000};
/// After SIGKILL only a process stuck in the kernel lives on.
inline constexpr std::chrono::milliseconds kKillWait{5'000};

/// What is to be done. Of itself nothing.
struct Orders {
  bool conclude = false;  ///< decide who failed first, before the signal is sent, and say it afterwards
  int signal = 0;         ///< to all process groups; 0: none
  bool abandon = false;   ///< what still lives cannot be killed: leave it behind
  /// Call on_deadline() after this time, instead of what was set before.
  std::optional<std::chrono::milliseconds> deadline;
};

class Stages {
 public:
  /// `grace`: from the signal that ends the workers to SIGKILL.
  explicit Stages(std::chrono::milliseconds grace) : grace_(grace) {}

  Stage stage() const { return stage_; }
  /// The first signal that asked the agent to end the job; 0: none.
  int stop_signal() const { return stop_signal_; }

  /// A worker has failed, or, in last_words, ended. `more_to_come`: one that is about to end may have failed before it.
  Orders on_failure(bool more_to_come);
  /// The ranks have made room for another node, for which the workers are to end: those that have not when the grace
  /// period is over are told to. Nothing, the second time.
  Orders on_leaving();
  /// All workers have ended, so what is left in their groups has no purpose; or something of the launcher's own has
  /// failed. Nothing, when the end has begun.
  Orders stop_running();
  /// Somebody wants the job to end. While it runs, the workers get the signal as it is; once they are told to end, by a
  /// signal or after a failure, another may kill them (ends_at_once()).
  Orders on_stop(int signal);
  /// No grace is left: another node may go on without this one.
  Orders cut_off() { return stage_ == Stage::killing ? Orders{} : kill(); }
  /// The time that the last deadline gave is up.
  Orders on_deadline();

 private:
  Orders end(int signal);
  Orders kill();

  const std::chrono::milliseconds grace_;
  Stage stage_ = Stage::running;
  bool leaving_ = false;
  int stop_signal_ = 0;
};

}  // namespace lockstep::launch
