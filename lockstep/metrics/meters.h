#pragma once

// Meters: plain arithmetic, the time is an argument. Not thread-safe.

#include <cstdint>
#include <deque>
#include <utility>

namespace lockstep::metrics {

/// Weighted mean of what was added; 0 of nothing.
class RunningMean {
 public:
  void add(double value, double weight = 1) {
    sum_ += value * weight;
    weight_ += weight;
  }
  double mean() const { return weight_ == 0 ? 0 : sum_ / weight_; }
  void reset() { *this = {}; }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

/// Samples per second over the last `window` seconds. Times are seconds of one clock that
/// does not run backwards.
class Throughput {
 public:
  /// Counting starts at `now`.
  explicit Throughput(double now, double window = 10);
  /// `samples` were finished at `now`.
  void add(double now, std::int64_t samples);
  /// From the newest mark at least `window` seconds before the last add (else the start) to
  /// the last add; 0 when no time has passed.
  double per_second() const;

 private:
  double window_;
  std::deque<std::pair<double, std::int64_t>> marks_;  ///< time, samples since the start
};

}  // namespace lockstep::metrics
