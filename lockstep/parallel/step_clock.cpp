#include "lockstep/parallel/step_clock.h"

#include <string>

namespace lockstep::parallel {
namespace {

double seconds_between(StepClock::Time from, StepClock::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void StepClock::phase(const char* name, double& counter, Time until) {
  counter += seconds_between(mark_, until) - exchanged_;
  if (timeline_ != nullptr) timeline_->add(name, mark_, until);
  mark_ = until;
  exchanged_ = 0;
}

void StepClock::begin_forward() {
  end_backward();  // of an earlier pass of the step
  new_order_ = true;
  phase("between", now_.between, std::chrono::steady_clock::now());
}

void StepClock::end_forward() { phase("forward", now_.forward, std::chrono::steady_clock::now()); }

void StepClock::gradient(std::size_t parameter) {
  if (new_order_) order_.clear();
  new_order_ = false;
  order_.push_back(parameter);
  gradients_ = true;
  last_gradient_ = std::chrono::steady_clock::now();
}

void StepClock::exchanged(std::size_t bucket, Time begin) {
  waited("bucket " + std::to_string(bucket), begin);
  last_gradient_ = std::chrono::steady_clock::now();
  gradients_ = true;
}

void StepClock::waited(const std::string& what, Time begin) {
  const Time end = std::chrono::steady_clock::now();
  const double seconds = seconds_between(begin, end);
  exchanged_ += seconds;
  now_.exchange += seconds;
  if (timeline_ != nullptr) timeline_->add("exchange " + what, begin, end);
}

void StepClock::carried(const std::vector<WaveTime>& waves) {
  for (std::size_t i = 0; timeline_ != nullptr && i < waves.size(); ++i)
    timeline_->add("wave " + std::to_string(i), waves[i].begin, waves[i].end, /*row=*/1);
}

void StepClock::end_backward() {
  if (gradients_) phase("backward", now_.backward, last_gradient_);
  gradients_ = false;
}

void StepClock::begin_update() { end_backward(); }

void StepClock::skip() {
  now_ = {};
  exchanged_ = 0;
  gradients_ = false;
  new_order_ = true;
  mark_ = std::chrono::steady_clock::now();
}

void StepClock::end_step(std::uint64_t step, bool updated) {
  end_backward();
  if (updated) phase("update", now_.update, std::chrono::steady_clock::now());
  last_ = now_;
  all_.between += now_.between;
  all_.forward += now_.forward;
  all_.backward += now_.backward;
  all_.exchange += now_.exchange;
  all_.update += now_.update;
  now_ = {};
  ++steps_;
  new_order_ = true;
  if (timeline_ != nullptr) timeline_->end_step(step);
}

}  // namespace lockstep::parallel
