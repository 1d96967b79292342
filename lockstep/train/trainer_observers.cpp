#include "lockstep/train/trainer_observers.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// What early stopping knows.
struct Patience {
  double best = std::numeric_limits<double>::quiet_NaN();  // not a number: none yet
  std::int64_t worse = 0;                                  // evaluations since
  std::uint64_t step = 0;                                  // of the last one that counted
};

// Behind an evaluation; a restart makes that of the committed step once more.
Patience heeded(const EarlyStoppingOptions& options, Patience before, std::uint64_t step, double found) {
  if (step <= before.step) return before;
  const double gain = options.smaller_is_better ? before.best - found : found - before.best;
  const bool is_first = std::isnan(before.best) && !std::isnan(found);
  const bool is_better = is_first || gain > options.min_delta;
  return {.best = is_better ? found : before.best, .worse = is_better ? 0 : before.worse + 1, .step = step};
}

}  // namespace

TrainerObserver early_stopping(const EarlyStoppingOptions& options) {
  if (options.patience < 1 || !(options.min_delta >= 0))
    throw UsageError("early stopping: patience " + std::to_string(options.patience) + " and min_delta " +
                     std::to_string(options.min_delta) + ": at least 1 and 0 expected");
  const auto known = std::make_shared<Patience>();
  TrainerObserver observer{.name = "early stopping"};
  observer.after_evaluation = [known, options](const Standing& now, const Found& found) {
    const auto value = found.find(options.monitor);
    if (value == found.end()) throw UsageError("early stopping: evaluate has found no '" + options.monitor + "'");
    *known = heeded(options, *known, now.step, value->second);
  };
  observer.wants_end = [known, options](const Standing&) { return known->worse >= options.patience; };
  observer.kept = std::as_writable_bytes(std::span(known.get(), 1));
  return observer;
}

TrainerObserver time_limit(double seconds) {
  if (!(seconds > 0)) throw UsageError("time limit: " + std::to_string(seconds) + " s: more than 0 expected");
  return {.name = "time limit", .wants_end = [seconds](const Standing& now) { return now.seconds >= seconds; }};
}

TrainerObserver console(const parallel::Engine& engine, std::uint64_t every) {
  if (engine.group().rank() != 0) return {};
  const auto before = std::make_shared<Standing>();
  TrainerObserver observer;
  observer.after_step = [before, every](const Standing& now) {
    if (every == 0 || now.step % every != 0) return;
    const double rate = double(now.samples - before->samples) / (now.seconds - before->seconds);
    std::printf("epoch %" PRId64 "  step %" PRIu64 "  loss %.4f  lr %g", now.epoch + 1, now.step, now.loss, now.lr);
    if (now.gradient_norm != 0) std::printf("  norm %.4g", now.gradient_norm);
    std::printf("  %.0f samples/s\n", rate);
    std::fflush(stdout);
    *before = now;
  };
  observer.after_evaluation = [](const Standing& now, const Found& found) {
    std::printf("epoch %" PRId64 "  evaluation:", now.epoch + 1);
    for (const auto& [name, value] : found) std::printf(" %s %.4f", name.c_str(), value);
    std::printf("\n");
    std::fflush(stdout);
  };
  return observer;
}

}  // namespace lockstep::train
