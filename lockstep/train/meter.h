#pragma once

// How long the parts of a run's steps take.

#include <chrono>
#include <cstdint>
#include <utility>

#include "lockstep/train/observer.h"

namespace lockstep::train {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Adds the seconds of its scope to a counter.
class [[nodiscard]] Timed {
 public:
  explicit Timed(double& counter) : counter_(counter) {}
  ~Timed() { counter_ += seconds_since(start_); }
  Timed(const Timed&) = delete;

 private:
  double& counter_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// What this start of the job has done: since the last train event, and before it.
struct Meter {
  TimeSplit time;            ///< since the last train event
  std::int64_t samples = 0;  ///< since then
  double told_seconds = 0;   ///< what train events have told of
  std::int64_t told_samples = 0;
  InputWork told_work;       ///< of the loader's threads
  double told_exchange = 0;  ///< seconds in which steps waited for other ranks

  /// What no event has told of all the work that the loader's threads have done.
  InputWork untold(const InputWork& all) {
    const InputWork work{all.prepare - told_work.prepare, all.decode - told_work.decode};
    told_work = all;
    return work;
  }

  /// What no event has told of all seconds in which steps have waited for other ranks.
  double untold_exchange(double all) { return all - std::exchange(told_exchange, all); }

  /// Puts what was done into an event, and begins anew.
  void tell(TrainEvent& event) {
    event.time = time;
    event.samples = samples;
    told_seconds += time.total();
    told_samples += samples;
    time = {};
    samples = 0;
  }
};

}  // namespace lockstep::train
