#include "lockstep/train/trainer_observers.h"

#include <unistd.h>

#include <cmath>
#include <iomanip>
#include <memory>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/outlet.h"

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

// What console() has shown, and its way out. The results of evaluations get out before the observer ends.
struct Shown {
  ~Shown() { outlet.flush(base::Outlet::Clock::now() + base::kPatience); }

  base::Outlet outlet = base::Outlet::console(STDOUT_FILENO);
  Standing before;
};

std::string step_line(const Standing& now, const Standing& before) {
  std::ostringstream line;
  line << "epoch " << now.epoch + 1 << "  step " << now.step << std::fixed << std::setprecision(4) << "  loss "
       << now.loss << std::defaultfloat << "  lr " << std::setprecision(6) << now.lr;
  if (now.gradient_norm != 0) line << "  norm " << std::setprecision(4) << now.gradient_norm;
  const double rate = double(now.samples - before.samples) / (now.seconds - before.seconds);
  line << std::fixed << std::setprecision(0) << "  " << rate << " samples/s\n";
  return line.str();
}

std::string evaluation_line(const Standing& now, const Found& found) {
  std::ostringstream line;
  line << "epoch " << now.epoch + 1 << "  evaluation:" << std::fixed << std::setprecision(4);
  for (const auto& [name, value] : found) line << ' ' << name << ' ' << value;
  line << '\n';
  return line.str();
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
  const auto shown = std::make_shared<Shown>();
  TrainerObserver observer;
  observer.after_step = [shown, every](const Standing& now) {
    if (every == 0 || now.step % every != 0) return;
    shown->outlet.offer(step_line(now, shown->before));
    shown->before = now;
  };
  observer.after_evaluation = [shown](const Standing& now, const Found& found) {
    shown->outlet.say(evaluation_line(now, found));
  };
  return observer;
}

}  // namespace lockstep::train
