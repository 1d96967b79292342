#pragma once

// The checkpoints of a run: --save-every, --checkpoint-hist, --checkpoint-best, --monitor, --resume.

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/checkpoint/background_saver.h"
#include "lockstep/train/input.h"
#include "lockstep/train/judge.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/options.h"

namespace lockstep::train {

/// Whether one is due behind a step; `seconds` since the one before, or the start.
bool is_due(const SaveEvery& every, std::int64_t step, const StepPlace& place, double seconds);

/// Which stay: the newest, and the best by options.monitor.
checkpoint::Retention retention_of(const CheckpointOptions& options);

/// What options.monitor names of an evaluation.
double monitored(const CheckpointOptions& options, const EvalEvent& event);

/// How the learning rate of a run of `epochs` (epochs_in_run()) goes, as JSON: the flags that say so.
std::string schedule_json(const Options& options, std::int64_t epochs);

/// How a step is computed, as JSON: the flags that change its bits and may be others in a run that goes on.
std::string training_json(const Options& options);

/// What the run is evaluated on, as JSON: metrics of others do not compare. Empty where it is not evaluated.
std::string evaluation_json(const Options& options, const Input& input);

/// How the average of its weights does; an empty object where it has none.
std::string average_json(const Options& options, std::int64_t global_batch, std::int64_t epochs);

/// What evaluations and overflows have decided so far, as JSON for people to read: the kept bytes are what counts.
std::string standing_json(const Options& options, const Judgement& judgement, const amp::GradScaler& scaler);

/// "device was cpu, now cuda" of what a checkpoint says of its run (JSON, null without one) and this run's --device; ""
/// where both are of one type. Checkpoints of before there were GPUs are of the CPU.
std::string device_change(const std::string& theirs, const std::string& device);

/// "it has no 'scaler', which this run has by --amp fp16: leave that out" of the names of the bytes that a checkpoint
/// and this run keep, for those that come and go with a flag; "" where both have the same of these.
std::string part_change(const std::set<std::string>& theirs, const std::set<std::string>& ours);

/// Of one run, on all ranks. Made before the optimizer.
class Checkpoints {
 public:
  /// Collective. Prepares to save in the background where options ask for it, and has the state begin with the
  /// checkpoint that options.checkpoints.resume names; a run that is started again, whose nodes share out the
  /// optimizer's state (options.zero1), with the newest of its own, where it has any. UsageError on all ranks when
  /// there is none, when it is damaged, or of a run on other data, with another model or optimizer.
  /// `judge` and `scaler` are those of the run, which state.json shall tell in words. They and `run` must outlive it.
  Checkpoints(const Options& options, parallel::Engine& engine, const RunSize& run, const Input& input,
              const Judge& judge, const amp::GradScaler& scaler);

  /// Whether the run goes on from a checkpoint behind which all was said and evaluated that belongs to its step.
  bool resumed_and_told() const { return resumed_step_ && told_; }
  /// Says there what the run goes on from, and what goes otherwise than in the run that saved it. Once it is known how
  /// many steps this one has.
  void describe_start(RunSize& run) const;

  /// Once the optimizer is made and the output directory is the run's, on all ranks: has the launcher save the last
  /// step of a run that fails for good, and no other program save there. UsageError, GroupAborted: as BackgroundSaver.
  void guard();

  /// Behind each step. `found`: by an evaluation, if there was one. Returns at once unless it is the last step, where
  /// it is collective, or one of an evaluation that waits for the save before it.
  void after_step(std::int64_t step, const StepPlace& place, bool last, const std::optional<EvalEvent>& found);

  /// Whether the one behind the last step could not be written, which was told. On rank 0.
  bool is_last_lost() const { return is_last_lost_; }

  /// The checkpoints that have become whole since this was asked last, on rank 0.
  std::vector<SaveEvent> news();

  /// For a run that stops behind a step, before that is told and evaluated; one that has taken none since it went on in
  /// its directory keeps the checkpoint that it has. Returns the checkpoint's path, on rank 0; empty: it could not be
  /// written, which was told. Collective.
  std::string save_and_stop();

 private:
  checkpoint::Resumed find_start() const;
  void resume();
  void check_parts(const std::string& path) const;
  std::int64_t epochs() const;
  checkpoint::SaveOptions what(bool told) const;
  void begin(const checkpoint::SaveOptions& now, bool awaited);
  void hear();

  const Options& options_;
  parallel::Engine& engine_;
  const RunSize& run_;
  const Judge& judge_;
  const amp::GradScaler& scaler_;
  std::string facts_;       ///< JSON: what a run that goes on must have alike, but for batch and shards
  std::string training_;    ///< training_json(): made of all flags, and the same at each save
  std::string evaluation_;  ///< evaluation_json(): as training_
  std::optional<checkpoint::BackgroundSaver> saver_;
  std::optional<std::int64_t> resumed_step_;
  bool told_ = true;  ///< what belongs to resumed_step_
  bool is_last_lost_ = false;
  std::vector<SaveEvent> news_;
  std::string resumed_from_;
  std::string theirs_ = "null";  ///< JSON: what what() has written there
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
};

/// Removes the checkpoints of the run that --overwrite replaces. By the process that has the output directory.
void remove_checkpoints(const std::string& output_dir);

}  // namespace lockstep::train
