#pragma once

// The files of a run (docs/design/metrics.md).

#include <memory>
#include <optional>

#include "lockstep/metrics/run_files.h"
#include "lockstep/rendezvous/environment.h"
#include "lockstep/train/events.h"

namespace lockstep::train {

/// Writes config.json at once and every event into the files of options.output_dir, which is this process's while the
/// object lives; those of an earlier start of the same job are continued. UsageError when the directory cannot be used.
class RunFiles final : public EventObserver {
 public:
  /// `record`: the options as config.json is to tell them. `held`: metrics::RunClaim::held.
  RunFiles(const Options& options, const Options& record, const rendezvous::Place& place,
           std::shared_ptr<metrics::RunLock> held);

  void started(const RunSize& run) override;
  void evaluated(const EvalEvent& event) override;
  void finished(const RunEnd& end) override;

 private:
  void write(const metrics::Event& event) override { files_.write(event); }

  const metrics::Hyperparameters hparams_;
  metrics::RunFiles files_;
};

/// What TensorBoard compares runs by: the flags that have a value, lists left out.
metrics::Hyperparameters hparams_of(const Options& record);

/// How long the files of options.output_dir were not written to; nothing when there is none. What a start of a job that
/// failed had not told yet, and what the next one took to begin, is within it.
std::optional<double> seconds_since_written(const Options& options);

}  // namespace lockstep::train
