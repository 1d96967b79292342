#pragma once

// The files of a run (docs/design/metrics.md).

#include <chrono>
#include <optional>
#include <string_view>

#include "lockstep/metrics/run_files.h"
#include "lockstep/train/events.h"

namespace lockstep::train {

/// Writes config.json at once and every event into the files of options.output_dir, which is this process's while the
/// object lives; those of an earlier start of the same job are continued. UsageError when the directory cannot be used.
class RunFiles final : public EventObserver {
 public:
  /// `record`: the options as config.json is to tell them.
  RunFiles(const Options& options, const Options& record, const metrics::RunClaim& claim);

  void started(const RunSize& run) override;
  void evaluated(const EvalEvent& event) override;
  void finished(const RunEnd& end) override;

 private:
  void write(const metrics::Event& event) override { files_.write(event); }

  const metrics::Hyperparameters hparams_;
  metrics::RunFiles files_;
};

/// Whether two texts of config.json are those of one job: the number of processes may have changed, as where a node has
/// come, and makes no other bits.
bool differs_in_processes_alone(std::string_view there, std::string_view now);

/// How long a start of the job waits for the directory's lock of a machine that may be gone: the other ranks wait
/// meanwhile, and are to hear why before their own time is up.
std::chrono::milliseconds lock_patience(const Options& options);

/// What TensorBoard compares runs by: the flags that have a value, lists left out.
metrics::Hyperparameters hparams_of(const Options& record);

/// How long the files of options.output_dir were not written to; nothing when there is none. What a start of a job that
/// failed had not told yet, and what the next one took to begin, is within it.
std::optional<double> seconds_since_written(const Options& options);

}  // namespace lockstep::train
