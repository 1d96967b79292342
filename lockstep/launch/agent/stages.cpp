#include "lockstep/launch/agent/stages.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "lockstep/launch/agent/policy.h"

namespace lockstep::launch {

Orders Stages::on_failure(bool more_to_come) {
  if (stage_ == Stage::ending || stage_ == Stage::killing) return {};
  if (more_to_come && stage_ == Stage::last_words) return {};
  if (more_to_come && grace_.count() > 0) {
    stage_ = Stage::last_words;
    return {.deadline = std::min(grace_, kLastWords)};
  }
  Orders orders = end(SIGTERM);
  orders.conclude = true;
  return orders;
}

// Without a signal: who listens to one would save, and say that the job is to stop.
Orders Stages::on_leaving() {
  if (stage_ != Stage::running || std::exchange(leaving_, true)) return {};
  return {.deadline = grace_};
}

Orders Stages::stop_running() { return stage_ == Stage::running ? end(SIGTERM) : Orders{}; }

Orders Stages::on_stop(int signal) {
  const int first = std::exchange(stop_signal_, stop_signal_ != 0 ? stop_signal_ : signal);
  if (stage_ == Stage::running) return end(signal);
  const bool conclude = stage_ == Stage::last_words;
  Orders orders = ends_at_once(first, signal) ? kill() : conclude ? end(SIGTERM) : Orders{};
  orders.conclude = conclude;
  return orders;
}

Orders Stages::on_deadline() {
  if (stage_ == Stage::last_words) return on_failure(/*more_to_come=*/false);
  if (stage_ == Stage::running) return end(SIGTERM);
  if (stage_ == Stage::ending) return kill();
  return {.abandon = true};
}

Orders Stages::end(int signal) {
  stage_ = Stage::ending;
  return {.signal = signal, .deadline = grace_};
}

Orders Stages::kill() {
  stage_ = Stage::killing;
  return {.signal = SIGKILL, .deadline = kKillWait};
}

}  // namespace lockstep::launch
