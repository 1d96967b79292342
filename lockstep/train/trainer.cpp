#include "lockstep/train/trainer.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/evaluation/pass.h"
#include "lockstep/train/meter.h"

namespace lockstep::train {
namespace {

constexpr const char* kSignal = "signal";

void check_trainer_options(const TrainerOptions& options) {
  if (options.epochs < 0)
    throw UsageError("trainer: epochs is " + std::to_string(options.epochs) + ": 0 or more expected");
  if (options.checkpoints.empty() && (options.save_every > 0 || !options.monitor.empty()))
    throw UsageError(std::string("trainer: ") + (options.save_every > 0 ? "save_every" : "monitor") +
                     " has no meaning without checkpoints, the folder");
  if (!options.monitor.empty() && !options.evaluate)
    throw UsageError("trainer: monitor '" + options.monitor + "' has no meaning without evaluate");
}

std::vector<checkpoint::KeptNumber> place_of_loader() {
  return checkpoint::place_of("loader", data::DataLoader::place_in_kept());
}

// That a node has come is no failure, though the step throws.
bool makes_room(const std::exception& error) {
  const auto* const aborted = dynamic_cast<const GroupAborted*>(&error);
  return aborted != nullptr && base::makes_room(aborted->failure());
}

bool has_checkpoint(const std::string& folder, std::uint64_t step) {
  std::error_code ignored;  // who saves there is told
  return std::filesystem::exists(std::filesystem::path(folder) / checkpoint::step_name(step), ignored);
}

}  // namespace

TrainerEnd::operator int() const {
  if (!unsaved.empty()) return kExitFailure;
  return stopped_by == kSignal ? kExitStopped : kExitDone;
}

struct Trainer::Run {
  optim::Optimizer& optimizer;
  const ShardLoss& loss;
  amp::GradScaler plain{{.enabled = false}};
  Standing standing = {};
  TrainerEnd end = {};
  std::uint64_t saved_step = 0;  // the last one that was, on rank 0
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

Trainer::Trainer(parallel::Engine& engine, data::DataLoader& loader, TrainerOptions options)
    : engine_(engine), loader_(loader), options_(std::move(options)) {
  check_trainer_options(options_);
  engine_.state().keep("loader", loader_.kept());
  if (options_.checkpoints.empty()) return;
  if (!options_.stop_on.empty()) stop_on_.emplace(options_.stop_on);
  saver_.emplace(options_.checkpoints, engine_, options_.retention);
  resumed_step_ = checkpoint::resume(options_.checkpoints, engine_).step;
}

Trainer::~Trainer() = default;

void Trainer::add(TrainerObserver observer) {
  if (observer.name.empty() && (observer.wants_end || !observer.kept.empty()))
    throw UsageError("trainer: an observer that wants the end, or keeps something, needs a name");
  if (observer.name == kSignal)
    throw UsageError("trainer: an observer called 'signal': stopped_by says that of a signal, another name expected");
  const auto has_name = [&](const TrainerObserver& other) { return other.name == observer.name; };
  if (!observer.name.empty() && std::ranges::any_of(observers_, has_name))
    throw UsageError("trainer: a second observer called '" + observer.name + "'");
  if (!observer.kept.empty()) engine_.state().keep("observer " + observer.name, observer.kept);
  observers_.push_back(std::move(observer));
}

template <class Member, class... Arguments>
void Trainer::tell(Member member, const Arguments&... arguments) const {
  for (const TrainerObserver& observer : observers_)
    if (observer.*member) (observer.*member)(arguments...);
}

TrainerEnd Trainer::run(optim::Optimizer& optimizer, const ShardLoss& loss) {
  Run run{.optimizer = optimizer, .loss = loss};
  run.standing.step = engine_.steps();
  run.standing.epoch = loader_.epoch();
  try {
    return train(run);
  } catch (const std::exception& error) {
    if (!makes_room(error)) tell(&TrainerObserver::failed, run.standing, error);
    throw;
  }
}

TrainerEnd Trainer::train(Run& run) {
  run.saved_step = resumed_step_;
  const std::uint64_t skipped_before = saver_ ? saver_->skipped() : 0;
  if (saver_)
    checkpoint::save_on_failure(options_.checkpoints, engine_,
                                {.retention = options_.retention, .place = place_of_loader()});
  // Due at the step behind which the attempt before has ended, for a node that came or by a fault. What ends an epoch
  // is saved when that is evaluated.
  const std::uint64_t begun = engine_.steps();
  const bool is_owed = saver_ && begun > resumed_step_ && is_due(begun) && !is_untold(loader_.epoch());
  if (is_owed && is_so_on_rank_zero(engine_.group().rank() == 0 && !has_checkpoint(options_.checkpoints, begun)))
    save(run, nullptr);
  bool left = ends(run);
  for (auto epoch = loader_.epoch(); epoch < options_.epochs && (is_untold(epoch) || !(left || is_at_end())); ++epoch) {
    run.standing.epoch = epoch;
    if (!is_untold(epoch)) tell(&TrainerObserver::before_epoch, run.standing);
    loader_.set_epoch(epoch);
    for (auto& batch : loader_)
      if (left = step(run, batch); left) break;
    const bool is_whole = loader_.state().batch == loader_.size();  // else left, or behind the loader's total
    // Who was sent a signal has little time: the next start finds the epoch's end, and goes on from there.
    if (is_whole && run.end.stopped_by != kSignal) left = end_epoch(run) || left;
    left = left || !is_whole;
  }
  if (saver_) {
    // Together: what the program does next on the other ranks would wait for rank 0 no longer than the timeout.
    saver_->wait_together();
    tell_of_save(run);
    if (is_so_on_rank_zero(engine_.steps() > run.saved_step)) save(run, nullptr, /*awaited=*/true);
    saver_->wait_together();
    tell_of_save(run);
    run.end.skipped = saver_->skipped() - skipped_before;
  }
  run.end.steps = engine_.steps();
  return run.end;
}

// Returns whether it was the last one.
bool Trainer::step(Run& run, const data::Batch& batch) {
  Standing& now = run.standing;
  now.step = engine_.next_step();
  if (options_.lr) run.optimizer.set_lr(*options_.lr, now.step - 1);
  now.lr = run.optimizer.lr();
  tell(&TrainerObserver::before_step, now);
  amp::GradScaler& scaler = options_.scaler != nullptr ? *options_.scaler : run.plain;
  (options_.nan_guard ? run_guarded_shards : run_shards)(engine_, batch, run.loss, scaler);
  optim::StepOptions how = options_.step;
  how.error_if_nonfinite = how.error_if_nonfinite || (options_.nan_guard && !scaler.is_enabled());
  scaler.step(run.optimizer, how);
  scaler.update();
  const auto record = engine_.last_record();
  now.loss = record.loss;
  now.gradient_norm = record.gradient_norm;
  now.samples += record.samples;
  now.seconds = seconds_since(run.start);
  tell(&TrainerObserver::after_step, now);
  const bool ends_epoch = loader_.state().batch == loader_.size();
  if (saver_) tell_of_save(run);
  if (saver_ && !ends_epoch && is_due(now.step)) save(run, nullptr);  // else behind the evaluation
  if (stop_on_ && engine_.should_stop()) {
    run.end.stopped_by = kSignal;
    return true;
  }
  return is_at_end() || ends(run);
}

bool Trainer::end_epoch(Run& run) {
  run.standing.seconds = seconds_since(run.start);
  tell(&TrainerObserver::after_epoch, run.standing);
  std::optional<Found> found;
  if (options_.evaluate) {
    tell(&TrainerObserver::before_evaluation, run.standing);
    try {
      found = options_.evaluate();
    } catch (const evaluation::Stopped&) {  // by who was sent a signal; the next start evaluates anew
      run.end.stopped_by = kSignal;
      return true;
    }
    tell(&TrainerObserver::after_evaluation, run.standing, *found);
    const auto keeps = [](const TrainerObserver& observer) { return !observer.kept.empty(); };
    if (std::ranges::any_of(observers_, keeps)) engine_.state().recommit();
  }
  const bool is_rated = found && !options_.monitor.empty();
  if (saver_ && (options_.save_every == 0 || is_due(run.standing.step) || is_rated))
    save(run, found ? &*found : nullptr);
  return options_.evaluate && ends(run);
}

// One that falls due while another runs is left out, and counted: training goes on. But what an evaluation was of is
// waited for, since no later one has its weights.
void Trainer::save(Run& run, const Found* found, bool awaited) {
  checkpoint::SaveOptions what{.place = place_of_loader()};
  if (found != nullptr && !options_.monitor.empty()) {
    const auto metric = found->find(options_.monitor);
    if (metric == found->end())
      throw UsageError("trainer: monitor '" + options_.monitor + "' is nothing that evaluate has found");
    what.metric = metric->second;
    saver_->wait_for(engine_.group().node().member.timeout() / 4);  // the other ranks wait, too, and give up some time
  }
  tell_of_save(run);
  saver_->save(what, awaited);
}

// Of the one that has ended since, if one has.
void Trainer::tell_of_save(Run& run) {
  const auto saved = saver_->ended();
  if (!saved) return;
  run.end.unsaved = saved->problem;
  if (saved->problem.empty()) run.saved_step = saved->step;
  if (!saved->path.empty()) tell(&TrainerObserver::after_checkpoint, run.standing, saved->path);
}

// Whether an observer of any rank wants the end; the same on all ranks.
bool Trainer::ends(Run& run) {
  const auto may_end = [](const TrainerObserver& observer) { return bool(observer.wants_end); };
  if (std::ranges::none_of(observers_, may_end)) return false;
  const auto wants_end = [&](const TrainerObserver& observer) {
    return may_end(observer) && observer.wants_end(run.standing);
  };
  const auto first = std::ranges::find_if(observers_, wants_end) - observers_.begin();
  const at::Tensor agreed = at::full({1}, std::int64_t(first), at::kLong);
  engine_.group().all_reduce(agreed, comm::ReduceOp::min);
  const auto place = std::size_t(agreed.item<std::int64_t>());
  if (place == observers_.size()) return false;
  run.end.stopped_by = observers_[place].name;
  return true;
}

// What rank 0 alone knows of checkpoints, on all ranks: all may have to do with a save.
bool Trainer::is_so_on_rank_zero(bool here) const {
  const at::Tensor so = at::full({1}, std::int64_t(here), at::kLong);
  engine_.group().broadcast(so);
  return so.item<std::int64_t>() == 1;
}

bool Trainer::is_due(std::uint64_t step) const { return options_.save_every > 0 && step % options_.save_every == 0; }

// Whether all of it was trained, and a signal or a fault came before that was told and evaluated.
bool Trainer::is_untold(std::int64_t epoch) const {
  const data::DataLoaderState place = loader_.state();
  return place.epoch == epoch && place.batch == loader_.size();
}

bool Trainer::is_at_end() const { return options_.max_steps && engine_.steps() >= *options_.max_steps; }

}  // namespace lockstep::train
