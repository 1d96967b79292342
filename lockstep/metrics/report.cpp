#include "lockstep/metrics/report.h"

#include <exception>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::metrics {
namespace {

void check(const EvalPoint& point) {
  if (point.numbers.empty()) throw UsageError("report: an evaluation without numbers");
  for (const char* const name : {"event", "time", "step", "epoch", "samples", "best_on"})
    if (point.numbers.contains(name))
      throw UsageError(std::string("report: a number of an evaluation is called '") + name +
                       "', which every evaluation has besides its numbers; another name expected");
}

}  // namespace

Report::Report(const ReportOptions& options) : first_step_(options.first_step) {
  if (!options.folder.empty() && options.run_id.empty())
    throw UsageError("report: folder '" + options.folder + "' without a run_id: give it world.run_id()");
  if (options.rank != 0) return;
  if (!options.folder.empty())
    files_.emplace(options.folder, options.config,
                   RunClaim{.run_id = options.run_id, .attempt = options.attempt, .overwrite = options.overwrite});
  progress_.emplace(options.progress, options.length);
  write({.kind = Kind::start,
         .fields = {{"steps", options.length.steps},
                    {"restart_count", std::int64_t(options.attempt)},
                    {"first_step", options.first_step}}});
}

void Report::train(const TrainPoint& point) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - told_).count();
  told_ = now;
  Event event{.kind = Kind::train,
              .fields = {{"step", point.step}, {"epoch", point.epoch}, {"loss", point.loss}, {"lr", point.lr}}};
  if (point.samples > 0 && seconds > 0)
    event.fields.emplace_back("samples_per_second", double(point.samples) / seconds);
  write(std::move(event));
}

void Report::eval(const EvalPoint& point) {
  check(point);
  Event event{.kind = Kind::eval, .fields = {{"step", point.step}, {"epoch", point.epoch}}};
  for (const auto& [name, number] : point.numbers) event.fields.emplace_back(name, number);
  event.fields.emplace_back("samples", point.samples);
  write(std::move(event));
}

void Report::done(std::int64_t steps, const std::string& weights_hash) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  write({.kind = Kind::done,
         .fields = {{"seconds", seconds},
                    {"steps", steps},
                    {"attempt_steps", steps - (first_step_ - 1)},
                    {"weights_hash", weights_hash}}});
}

// A folder that fails does not keep the line from who is looking.
void Report::write(Event event) {
  event.time = seconds_now();
  std::exception_ptr first;
  try {
    if (files_) files_->write(event);
  } catch (...) {
    first = std::current_exception();
  }
  if (progress_) progress_->write(event);
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::metrics
