#pragma once

// The training loop.

#include <chrono>
#include <memory>
#include <optional>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/comm/world.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/metrics/run_lock.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/additions.h"
#include "lockstep/train/checkpoints.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/fine_tuning.h"
#include "lockstep/train/input.h"
#include "lockstep/train/judge.h"
#include "lockstep/train/make_model.h"
#include "lockstep/train/meter.h"
#include "lockstep/train/observer.h"
#include "lockstep/train/rate_schedule.h"

namespace lockstep::train {

/// One run of `lockstep train` on one rank: what it is made of, each part made from the options by its own function,
/// and the order in which they work. Collective: all ranks make one with the same options and call run() once.
///
/// What decides how training goes on (the best result of an evaluation, the position of a sampler) is state, as the
/// weights are, and comes back after a restart only as that: its owner registers it between the engine and the
/// optimizer, for the optimizer's constructor makes the state and, after a restart, finds the committed one there.
/// A decision after an evaluation is one on all ranks, and commits the step that it belongs to anew. After a restart
/// the evaluation of the committed step runs again: a decision keeps the step that it was made at, and does nothing
/// when it is asked for that step again.
class Loop {
 public:
  /// Reads the data, makes the model and joins it into the group's shared state. UsageError
  /// for everything in the options that does not fit the data or the world. The arguments outlive it.
  Loop(const Options& options, const comm::World& world, const Additions& additions);

  /// Trains, evaluates, reports, saves. Throws what a step throws. Returns the exit code: kExitDone, or kExitStopped
  /// when a signal asked for the end before it was reached and everything is saved; kExitFailure where it could not be.
  int run();

 private:
  using Model = std::shared_ptr<models::ImageModel>;

  bool train_steps();
  int stop();
  int end(std::chrono::steady_clock::time_point start);
  void find_place();
  StepPlace place_of(std::int64_t number) const;
  bool time_is_up() const;
  bool is_so_anywhere(bool here) const;
  data::Batch next_batch();
  void step(std::int64_t number, const data::Batch& batch);
  void tell_of_checkpoints();
  bool after_step(std::int64_t number, const StepPlace& place);
  double rate(std::int64_t number) const;
  void report(std::int64_t number, const StepPlace& place);
  EvalEvent evaluate(std::int64_t number, const StepPlace& place);

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const Options& options_;
  const Additions& additions_;
  std::unique_ptr<StopOn> stop_on_;  ///< where there are checkpoints; first, for reading the data may take long
  comm::Group& group_;
  const at::Device device_;  ///< before anything asks libtorch about CUDA
  Input input_;
  RunSize run_;
  StartModel start_;
  Model model_;
  parallel::DistributedDataParallel<Model> ddp_;
  std::unique_ptr<amp::GradScaler> scaler_;
  std::unique_ptr<data::DataLoader> batches_;  ///< where there is something to train
  Judge judge_;
  // Other owners of state go here.
  // The directory is locked from before a checkpoint is chosen in it until the last save in the background has ended:
  // what has the lock is made before checkpoints_, and ends behind it.
  std::shared_ptr<metrics::RunLock> lock_;
  std::unique_ptr<Observer> observers_;
  Checkpoints checkpoints_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Schedule schedule_;
  Criterion criterion_;
  Meter meter_;
  bool out_of_time_ = false;
};

}  // namespace lockstep::train
