#pragma once

// What `lockstep train` shows and writes, for a loop of one's own: progress on standard output and the files of a run.
//
//   lockstep::metrics::Report report({.folder = "runs/today", .rank = world.rank(), .run_id = world.run_id(),
//                                     .attempt = world.attempt(),
//                                     .first_step = std::int64_t(ddp.next_step()),
//                                     .length = {.steps = 1000, .samples_per_step = 64}});
//   report.train({.step = step, .loss = loss, .lr = 0.1, .samples = 100 * 64});   // every hundred steps, say
//   report.eval({.step = step, .numbers = {{"rmse", rmse}}, .samples = found.samples});
//   report.done(1000, ddp.weights_hash());

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/metrics/progress.h"
#include "lockstep/metrics/run_files.h"

namespace lockstep::metrics {

struct ReportOptions {
  std::string folder = {};       ///< run directory; empty: no files
  std::string config = "{}\n";   ///< a JSON object, which becomes config.json
  int rank = 0;                  ///< rank 0 reports; on others the same calls do nothing
  std::string run_id = {};       ///< whose the folder is (World::run_id()); needed with one
  int attempt = 0;               ///< World::attempt(): how often the job was started before
  bool overwrite = false;        ///< replace the run that the folder holds
  std::int64_t first_step = 1;   ///< of this attempt
  RunLength length = {};         ///< for "step 100/600" and the time that is left
  int progress = STDOUT_FILENO;  ///< the descriptor of the progress line; it stays the caller's
};

/// After a step of training. Steps and epochs count from 1.
struct TrainPoint {
  std::int64_t step = 0;
  std::int64_t epoch = 1;
  double loss = 0;
  double lr = 0;
  std::int64_t samples = 0;  ///< of all ranks since the point before; 0: no rate is told
};

/// After an evaluation.
struct EvalPoint {
  std::int64_t step = 0;  ///< updates done so far
  std::int64_t epoch = 1;
  std::map<std::string, double> numbers = {};  ///< what was found, under names of one's own; at least one
  std::int64_t samples = 0;
};

/// Not thread-safe. What the disk refuses of a file is left out and told once (run_files.h); what else cannot be
/// written is an Error that names the file.
class Report {
 public:
  /// Errors: see RunDirectory::create(). UsageError for a folder without a run_id.
  explicit Report(const ReportOptions& options);
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// The rate is that of the time since the point before, or since the report was made; evaluations take of it.
  void train(const TrainPoint& point);
  /// UsageError on all ranks when there are no numbers, or one has a name that the event has for something else: event,
  /// time, step, epoch, samples.
  void eval(const EvalPoint& point);
  /// Once, last: `steps` of the whole run.
  void done(std::int64_t steps, const std::string& weights_hash);

  /// The event file of the folder, for pictures, histograms and texts. Null without a folder, and on other ranks.
  TensorBoard* tensorboard() { return files_ ? &files_->tensorboard() : nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  void write(Event event);

  const std::int64_t first_step_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point told_ = start_;  ///< the last point of training
  std::optional<RunFiles> files_;
  std::optional<Progress> progress_;
};

}  // namespace lockstep::metrics
