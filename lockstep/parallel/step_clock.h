#pragma once

// Where the time of this rank's steps goes, and in which order their gradients come (logging_data.h).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/logging_data.h"
#include "lockstep/parallel/timeline.h"

namespace lockstep::parallel {

/// When an exchange of waves was made, by a thread beside the program.
struct WaveTime {
  std::chrono::steady_clock::time_point begin{}, end{};
};

/// Takes no memory and makes no system call while it has no timeline, from the second step on.
class StepClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void begin_forward();
  void end_forward();
  /// The gradient of a parameter came.
  void gradient(std::size_t parameter);
  /// A bucket was exchanged since `begin`, within a backward pass.
  void exchanged(std::size_t bucket, Time begin);
  /// The last gradient of a step has come. Until end_step() time counts as an update, but for what waited() tells.
  void begin_update();
  /// Since `begin`, within a backward pass or an update, this rank waited for the `what` of the others.
  void waited(const std::string& what, Time begin);
  /// The exchanges of a step with other nodes, in their order: they are shown, and count nowhere.
  void carried(const std::vector<WaveTime>& waves);
  /// What was since the last step counts nowhere: this rank had no inputs.
  void skip();
  /// Step `step` is done. `updated`: since begin_update(); else there was none of ours.
  void end_step(std::uint64_t step, bool updated);

  /// From now on the phases go there, too.
  void set_timeline(std::unique_ptr<Timeline> timeline) { timeline_ = std::move(timeline); }
  Timeline* timeline() const { return timeline_.get(); }

  /// Steps and their times.
  LoggingData told() const { return {.steps = steps_, .last = last_, .all = all_}; }
  /// Of the last step that had any.
  const std::vector<std::size_t>& ready_order() const { return order_; }

 private:
  void end_backward();
  void phase(const char* name, double& counter, Time until);

  Time mark_ = std::chrono::steady_clock::now();  ///< the end of the last phase
  Time last_gradient_{};
  bool gradients_ = false;  ///< came since the last forward
  bool new_order_ = true;   ///< the next gradient is the first of a pass
  double exchanged_ = 0;    ///< since the end of the last phase
  StepTimes now_, last_, all_;
  std::uint64_t steps_ = 0;
  std::vector<std::size_t> order_;
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace lockstep::parallel
