#pragma once

// A training loop of one's own without the loop: epochs, steps, evaluations, checkpoints, the end in good order.
//
//   lockstep::DistributedDataParallel ddp(std::make_shared<Net>(), world.group(), {.shards = 4});
//   data::DataLoader loader(Waves{0, 8192}, ddp.part(), {.global_batch_size = 64, .shuffle = true});
//   train::Trainer trainer(ddp, loader, {.epochs = 5, .checkpoints = "checkpoints", .save_every = 100});
//   trainer.add(train::console(ddp));
//   lockstep::optim::Adam optimizer(ddp, {.lr = 1e-3});                 // behind the trainer
//   return trainer.run(optimizer, [&](const train::Shard& shard) {
//     return torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
//   });

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/stop_on.h"
#include "lockstep/checkpoint/background_saver.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/train/shard_losses.h"

namespace lockstep::train {

/// Where training stands when somebody is told.
struct Standing {
  std::uint64_t step = 0;                                  ///< the last one committed; before a step: the one to come
  std::int64_t epoch = 0;                                  ///< from 0
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last step's whole global batch
  double lr = 0;                                           ///< of the last step, or the one to come
  double gradient_norm = 0;                                ///< of the last step, before clipping; 0: it asked for none
  std::int64_t samples = 0;                                ///< in all steps of this process, of all ranks together
  double seconds = 0;                                      ///< since run() was called
};

/// What an evaluation has found, by name; the same on all ranks.
using Found = std::map<std::string, double>;

/// Who is told, on every rank, and may ask for the end. What is left out he does not hear of; what he throws ends the
/// job. He looks on: what decides how training goes on must be the same on all ranks, and belongs into `kept`.
struct TrainerObserver {
  std::string name = {};  ///< TrainerEnd::stopped_by, when he asks for the end
  std::function<void(const Standing&)> before_step = {};
  std::function<void(const Standing&)> after_step = {};
  /// Also where a start goes on in the middle of the epoch.
  std::function<void(const Standing&)> before_epoch = {};
  std::function<void(const Standing&)> after_epoch = {};
  std::function<void(const Standing&)> before_evaluation = {};
  std::function<void(const Standing&, const Found&)> after_evaluation = {};
  /// A checkpoint of an earlier step, once it is whole; on rank 0.
  std::function<void(const Standing&, const std::string& path)> after_checkpoint = {};
  /// This rank fails; the weights are those of the last committed step. It may throw nothing. Not told where the job
  /// makes room for a node (base/room.h), though run() throws.
  std::function<void(const Standing&, const std::exception&)> failed = {};
  /// Whether training should end here: asked behind each step and evaluation, and before the first step. One rank that
  /// says so is enough. Costs one small collective each time.
  std::function<bool(const Standing&)> wants_end = {};
  /// What he knows that must outlive a restart, committed with each step and evaluation. Its memory stays where it is.
  std::span<std::byte> kept = {};
};

struct TrainerOptions {
  std::int64_t epochs = 1;                        ///< passes over the data, >= 0
  std::optional<std::uint64_t> max_steps = {};    ///< of the whole job, at most
  std::optional<optim::Schedule> lr = {};         ///< of the steps done so far; none: the optimizer's own rate
  optim::StepOptions step = {};                   ///< clipping, for instance
  amp::GradScaler* scaler = nullptr;              ///< of Amp::fp16; kept by its owner
  bool nan_guard = false;                         ///< losses and gradients that are not finite end the job: the
                                                  ///< same Error on all ranks, with step, shard and rank, or parameter
                                                  ///< (StepOptions::error_if_nonfinite). One pass over the
                                                  ///< gradients and one small message per step. A scaler that is
                                                  ///< enabled leaves out steps with such gradients, which end nothing
  std::function<Found()> evaluate = {};           ///< behind each whole epoch, at a signal in the next start;
                                                  ///< collective, the same on all ranks. evaluation::Stopped, which
                                                  ///< PassOptions::asked_to_stop has it throw, ends the run as a
                                                  ///< signal does
  std::string checkpoints = {};                   ///< folder; empty: none are saved, and no signal is heeded
  std::uint64_t save_every = 0;                   ///< steps; 0: behind each epoch. One that falls due while another
                                                  ///< runs is left out, but for the last and that of `monitor`
  checkpoint::Retention retention = {.keep = 3};  ///< which of them stay
  std::string monitor = {};                       ///< what of Found says which one is the best, the larger the
                                                  ///< better unless retention says else; then one is saved behind
                                                  ///< each evaluation, too; empty: nothing
  std::vector<int> stop_on = {SIGTERM};           ///< signals at which the job saves and ends
};

/// Why a run ended.
struct TrainerEnd {
  std::uint64_t steps = 0;      ///< committed, of the whole job
  std::string stopped_by = {};  ///< an observer's name, "signal", or empty: it came to its end
  std::string unsaved = {};     ///< why the last checkpoint could not be written, on rank 0; empty: it is there
  std::uint64_t skipped = 0;    ///< checkpoints that were left out while another one was written, on rank 0
  /// For main(): kExitFailure where the last checkpoint could not be written; else kExitStopped behind a signal, or
  /// kExitDone.
  operator int() const;
};

/// On all ranks, by one thread.
class Trainer {
 public:
  /// Before the optimizer is made. Collective. The loader's place becomes a part of the state; where there are
  /// checkpoints, the job goes on from the newest one. Both must outlive it. UsageError for options out of range, and
  /// as of checkpoint::resume().
  Trainer(parallel::Engine& engine, data::DataLoader& loader, TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;

  /// Before the optimizer is made, on all ranks the same ones in the same order; they are told in that order.
  /// UsageError when one that wants the end or keeps something has no name, or the name is taken or "signal".
  void add(TrainerObserver observer);

  /// Trains to the end, from where the state stands: that of the options, or of DataLoaderOptions::total_batches.
  /// `loss` is that of a shard, a mean over its samples. Throws what a step throws.
  TrainerEnd run(optim::Optimizer& optimizer, const ShardLoss& loss);

 private:
  struct Run;

  TrainerEnd train(Run& run);
  bool step(Run& run, const data::Batch& batch);
  bool end_epoch(Run& run);
  void save(Run& run, const Found* found, bool awaited = false);
  void tell_of_save(Run& run);
  bool ends(Run& run);
  bool is_so_on_rank_zero(bool here) const;
  bool is_due(std::uint64_t step) const;
  bool is_untold(std::int64_t epoch) const;
  bool is_at_end() const;
  template <class Member, class... Arguments>
  void tell(Member member, const Arguments&... arguments) const;

  parallel::Engine& engine_;
  data::DataLoader& loader_;
  const TrainerOptions options_;
  std::vector<TrainerObserver> observers_;
  std::optional<base::StopOn> stop_on_;
  std::optional<checkpoint::BackgroundSaver> saver_;
  std::uint64_t resumed_step_ = 0;  ///< of the checkpoint that the state began with
};

}  // namespace lockstep::train
