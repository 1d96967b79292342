#pragma once

// The training loop.

#include "lockstep/comm/world.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/input.h"
#include "lockstep/train/recipe.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shard_source.h"

namespace lockstep::train {

/// One run of `lockstep train` on one rank. Collective: all ranks make one with the same
/// options and call run() once.
class Loop {
 public:
  /// Reads the data, makes the model and joins it into the group's shared state. UsageError
  /// for everything in the options that does not fit the data or the world.
  Loop(const Options& options, const comm::World& world);

  /// Trains, evaluates, reports, saves. Throws what a step throws.
  void run();

 private:
  using Model = std::shared_ptr<models::ImageModel>;

  void train_steps();
  data::LoaderOptions loader_options() const;
  data::BatchSource train_source() const;
  void count_input_work();
  void step(const data::Batch& batch);
  void report_step(std::int64_t number, const StepPlace& place);
  void report_train(std::int64_t step, const StepPlace& place);
  void evaluate(std::int64_t step, const StepPlace& place);
  void save_weights() const;

  const Options& options_;
  comm::Group& group_;
  bool leader_;
  std::unique_ptr<Report> report_;
  Input input_;
  RunSize size_;
  Model model_;
  parallel::DistributedDataParallel<Model> ddp_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<data::Loader> loader_;  ///< while training
  TrainEvent since_last_event_;           ///< what the next train event will say
  InputWork input_told_;                  ///< what earlier train events have said
  double training_seconds_ = 0;
  std::int64_t training_samples_ = 0;
};

}  // namespace lockstep::train
