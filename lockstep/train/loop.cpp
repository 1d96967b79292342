#include "lockstep/train/loop.h"

#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/last_failure.h"
#include "lockstep/base/outlet.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "lockstep/metrics/run_directory.h"
#include "lockstep/nn/fuse.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/train/best.h"
#include "lockstep/train/engine_options.h"
#include "lockstep/train/memory_use.h"
#include "lockstep/train/observers.h"
#include "lockstep/train/rate_schedule.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/run_files.h"
#include "lockstep/train/same_data.h"
#include "lockstep/train/shard_losses.h"

namespace lockstep::train {
namespace {

RunSize size_of(const Options& options, const comm::World& world, const Input& input) {
  RunSize size{.world_size = world.size(), .restart_count = world.place().restart_count};
  size.train_samples = input.train ? input.train->size() : 0;
  size.plan = plan_batch(options, size.world_size, size.train_samples);
  if (options.checkpoints.monitor.ends_with("top5") && input.task.classes <= 5)
    throw UsageError("--monitor " + options.checkpoints.monitor + " with " + std::to_string(input.task.classes) +
                     " classes, of which no model misses all of five: top1 or loss");
  if (input.mix && size.plan.shard_batch < 2)
    throw UsageError(
        "--mixup-alpha and --cutmix-alpha mix the samples of a shard, and a shard has only one: a larger "
        "--batch-size, or fewer --logical-shards");
  size.epoch_steps = steps_per_epoch(size.plan, size.train_samples);
  if (options.limit_train_batches) size.epoch_steps = std::min(size.epoch_steps, *options.limit_train_batches);
  if (reads_data(options)) size.total_steps = steps_in_run(options, size.epoch_steps);
  return size;
}

metrics::RunClaim claim_of(const Options& options, const comm::World& world, std::shared_ptr<metrics::RunLock> held) {
  return {.run_id = world.run_id(),
          .attempt = world.attempt(),
          .overwrite = options.overwrite,
          .held = std::move(held),
          .goes_on = differs_in_processes_alone,
          .patience = lock_patience(options)};
}

// Of the directory whose run goes on, where there is one; rank 0's alone, which looks for the checkpoint.
std::shared_ptr<metrics::RunLock> lock_of(const Options& options, const comm::Group& group) {
  if (group.rank() != 0 || !continues_its_directory(options.checkpoints)) return nullptr;
  return metrics::lock_used(options.output_dir, lock_patience(options));
}

// What is told of a restart. The files are the job's own once it has taken a step.
void add_fault(RunSize& run, const Options& options, base::ControlPage& page) {
  if (const auto failure = base::last_failure(page)) run.last_fault = failure->to_string();
  if (run.first_step > 1) run.lost_seconds = seconds_since_written(options);
}

// Rank 0 says what was fused.
void fuse(models::ImageModel& model, const Options& options, bool says) {
  const std::vector<nn::Fusion> found = nn::fuse(model);
  if (found.empty())
    throw UsageError("--fuse has no meaning for --model " + options.model +
                     ", which has neither a Linear in a Sequential nor a ReLU behind a BatchNorm");
  std::ostringstream said;
  for (const nn::Fusion& one : found) said << "lockstep: fused " << one << '\n';
  if (says) base::tell(STDERR_FILENO, said.str());
}

// What the engine trains: replicas, or layers that meet those of other processes, are within its forward.
std::shared_ptr<models::ImageModel> trained(const std::shared_ptr<models::ImageModel>& model, const Options& options,
                                            const models::ImageTask& task, const Additions& additions,
                                            const std::shared_ptr<comm::Group>& group, at::Device device) {
  model->to(device);
  if (is_replicated(options)) return replicated(model, options, task, additions, device);
  if (options.fuse) fuse(*model, options, group->rank() == 0);
  if (!options.sync_bn) return model;
  convert_sync_batchnorm(model, group);
  if (parallel::synchronized_layer(*model).empty())
    throw UsageError("--sync-bn has no meaning for --model " + options.model + ", which has no BatchNorm");
  return model;
}

// As a user of PyTorch has them on the CPU: the same bits in every run.
at::Device device_of(const Options& options, const comm::World& world) {
  const at::Device device = device::choose(options.device, world.local_rank());
  if (device.is_cpu()) return device;
  device::compute_deterministically();
  return device;
}

std::unique_ptr<StopOn> stop_on(const Options& options) {
  if (!heeds_signals(options)) return nullptr;
  return std::make_unique<StopOn>(options.checkpoints.stop_on);
}

// With its place in the state, before the optimizer is made.
std::unique_ptr<data::DataLoader> make_batches(const Options& options, const Input& input, const RunSize& run,
                                               parallel::Engine& engine) {
  if (run.total_steps == 0) return nullptr;
  auto loader = make_loader(options, input, run, engine.part(), engine.device());
  engine.state().keep("loader", loader->kept());
  return loader;
}

// A part of the state where it scales. Made before the optimizer.
std::unique_ptr<amp::GradScaler> make_scaler(const Options& options, const parallel::EngineState& state) {
  auto scaler = std::make_unique<amp::GradScaler>(amp::GradScalerOptions{.enabled = amp_of(options) == Amp::fp16});
  if (amp_of(options) == Amp::fp16) state.keep("scaler", scaler->kept());
  return scaler;
}

InputWork work_of(const data::LoaderStatistics& statistics) {
  InputWork all;
  for (const data::WorkerStatistics& worker : statistics.workers) {
    all.prepare += worker.source_seconds;
    all.decode += worker.decode_seconds;
  }
  return all;
}

// Collective. The shared state, which is all ranks' together, is left out.
std::int64_t memory_of_all(comm::Group& group) {
  const at::Tensor bytes = at::full({1}, private_memory(), at::kLong);
  group.all_reduce(bytes);
  return bytes.item<std::int64_t>();
}

std::filesystem::path folder_of(const std::string& file) {
  return std::filesystem::absolute(file).lexically_normal().parent_path();
}

// Hours of training must not end at a file that cannot be written. A new run directory needs
// no look: that it can be made is the proof.
void check_target(const std::string& file, const std::string& output_dir) {
  if (file.empty()) return;
  std::error_code ignored;
  const auto run = output_dir.empty() ? std::filesystem::path() : folder_of(output_dir + "/.");
  if (folder_of(file + "/.") == run) throw UsageError("cannot write '" + file + "': it is the output directory");
  if (folder_of(file) != run || std::filesystem::exists(run, ignored)) base::AtomicFile{file};
}

// Hours of training must not end at a part that cannot be read.
Input whole_input(const Options& options, const Additions& additions, comm::Group& group) {
  Input input = checked_input(make_input(options, additions), group);
  with_test_split(options, input);
  return input;
}

}  // namespace

// What can be wrong is looked at before anything is written: the data, then the batch flags,
// then the weights, the file for the new ones, and only then the run directory.
Loop::Loop(const Options& options, const comm::World& world, const Additions& additions)
    : options_(options),
      additions_(additions),
      stop_on_(stop_on(options)),
      group_(*world.group()),
      device_(device_of(options, world)),
      input_(whole_input(options, additions, group_)),
      run_(size_of(options, world, input_)),
      start_(model_to_start(options, input_.task, additions, group_)),
      model_(trained(start_.model, options, input_.task, additions, world.group(), device_)),
      ddp_(model_, world.group(), engine_options(options, run_)),
      scaler_(make_scaler(options, ddp_.state())),
      batches_(make_batches(options, input_, run_, ddp_)),
      judge_(options, ddp_),
      lock_(lock_of(options, group_)),
      checkpoints_(options, ddp_, run_, input_, judge_, *scaler_),
      optimizer_(make_optimizer(options, *model_, ddp_)),
      criterion_(options, input_.task.classes) {
  keep_with_state(input_, group_);
  if (group_.rank() == 0)
    for (const std::string& file : {options.save_weights, options.save_ema_weights, options.timeline})
      check_target(file, options.output_dir);
  run_.new_layer = start_.new_layer;
  run_.convolutions = has_convolutions(*model_);
  run_.page_size = ddp_.debug().page_size();
  run_.first_step = std::int64_t(ddp_.next_step());
  if (batches_) find_place();
  schedule_ = make_schedule(options, run_.epoch_steps, run_.total_steps + run_.ahead);
  checkpoints_.describe_start(run_);
  if (!start_.checkpoint.empty()) run_.resumed_from = start_.checkpoint;
  if (run_.restart_count > 0) add_fault(run_, options, group_.node().member.page());
  observers_ = make_observers(options, planned(options, run_.plan, run_.world_size), world.rank(),
                              claim_of(options, world, lock_));
  // Also at a restart, when the first attempt came to none of its own: then they are of the run that is replaced.
  if (group_.rank() == 0 && options.overwrite && run_.first_step == 1) remove_checkpoints(options.output_dir);
  checkpoints_.guard();  // not before the directory is this run's
}

int Loop::run() {
  const auto start = std::chrono::steady_clock::now();
  observers_->started(run_);
  const bool complete = run_.total_steps <= 0 || train_steps();
  ddp_.stop_timeline();
  return complete ? end(start) : stop();
}

int Loop::stop() {
  const RunStop stop{.step = std::int64_t(ddp_.steps()), .checkpoint = checkpoints_.save_and_stop()};
  tell_of_checkpoints();
  observers_->stopped(stop);
  group_.barrier();
  return group_.rank() == 0 && stop.checkpoint.empty() ? kExitFailure : kExitStopped;
}

int Loop::end(std::chrono::steady_clock::time_point start) {
  if (options_.test_only) evaluate(0, {});
  const std::string hash = ddp_.weights_hash();
  if (group_.rank() == 0 && !options_.save_weights.empty())
    checkpoint::write_safetensors(options_.save_weights, ddp_.state_dict(), {{"format", "pt"}});
  if (group_.rank() == 0 && !options_.save_ema_weights.empty())
    checkpoint::write_safetensors(options_.save_ema_weights, ddp_.ema().state_dict(), {{"format", "pt"}});
  try {
    if (options_.eval_best)
      if (const auto best = evaluate_best(options_, input_, group_, additions_, device_)) observers_->evaluated(*best);
  } catch (const evaluation::Stopped&) {
    return stop();
  }
  const auto steps = std::int64_t(ddp_.steps());  // fewer than planned where --patience has ended it
  observers_->finished({.steps = steps,
                        .attempt_steps = steps - (run_.first_step - 1),
                        .samples = meter_.told_samples,
                        .seconds = seconds_since(start),
                        .training_seconds = meter_.told_seconds,
                        .weights_hash = hash});
  group_.barrier();                                                    // nobody leaves while a peer can still fail
  const bool asked = stop_on_ && is_so_anywhere(StopOn::requested());  // before rank 0 leaves, whatever its answer
  if (checkpoints_.is_last_lost()) return kExitFailure;
  // Who was asked to end says so, though everything is done: the launcher was asked, too.
  return asked ? kExitStopped : kExitDone;
}

// Of the state there is: the steps before may have been of another batch or number of shards, so that no formula says
// where they have led to.
void Loop::find_place() {
  const data::DataLoaderState place = batches_->state();
  if (place.seen > 0 && options_.limit_train_batches)
    throw UsageError(
        "--limit-train-batches has no meaning in an epoch that was begun with another batch or number of "
        "shards: leave it out, or go on with those of before");
  if (place.batch > run_.epoch_steps)
    throw UsageError("--limit-train-batches " + std::to_string(run_.epoch_steps) + " in an epoch of which " +
                     std::to_string(place.batch) + " batches were taken already: as many or more expected");
  run_.ahead = place.epoch * run_.epoch_steps + place.batch - (run_.first_step - 1);
  if (run_.ahead != 0 && options_.model_ema.on)
    throw UsageError(
        "--model-ema averages by the number of steps, which says nothing behind steps of another batch: go on with "
        "the batch, shards and --limit-train-batches of before");
  run_.total_steps = steps_in_run(options_, run_.epoch_steps, run_.ahead);
  // Who leaves out the rest of each epoch does not come to as many.
  if (!options_.limit_train_batches)
    batches_->set_total_batches(std::max<std::int64_t>(0, run_.total_steps + run_.ahead));
}

StepPlace Loop::place_of(std::int64_t number) const { return place_of_step(number + run_.ahead, run_.epoch_steps); }

// Returns whether it came to the end.
bool Loop::train_steps() {
  if (!options_.timeline.empty()) ddp_.start_timeline(options_.timeline);
  // Who died after a commit may not have come to say what belongs to that step.
  if (run_.first_step > 1 && !checkpoints_.resumed_and_told()) {
    StepPlace place = place_of(run_.first_step - 1);
    // Of less than one batch of now was taken some of the epoch: that ends none.
    if (const data::DataLoaderState now = batches_->state(); now.batch == 0) place = {.epoch = now.epoch};
    if (!after_step(run_.first_step - 1, place)) return false;
  }
  for (std::int64_t number = run_.first_step; number <= run_.total_steps && !judge_.ends_run() && !out_of_time_;
       ++number) {
    if (options_.limit_train_batches) batches_->set_epoch(place_of(number).epoch);
    step(number, next_batch());
    if (stop_on_ && ddp_.should_stop()) return false;
    out_of_time_ = time_is_up();
    if (!after_step(number, place_of(number))) return false;
  }
  batches_->set_total_batches(0);  // its threads end; its place stays, a part of the state
  return true;
}

// On all ranks alike: the clock of any of them decides.
bool Loop::time_is_up() const {
  return options_.max_time && is_so_anywhere(seconds_since(began_) >= *options_.max_time);
}

bool Loop::is_so_anywhere(bool here) const {
  const at::Tensor so = at::full({1}, std::int64_t(here), at::kLong);
  group_.all_reduce(so, comm::ReduceOp::max);
  return so.item<std::int64_t>() == 1;
}

data::Batch Loop::next_batch() {
  const Timed timed(meter_.time.data);
  std::optional<data::Batch> batch = batches_->next();
  return batch ? *std::move(batch) : *batches_->next();  // the first one of the next epoch
}

void Loop::step(std::int64_t number, const data::Batch& batch) {
  {
    const Timed timed(meter_.time.compute);
    const auto loss = [&](const Shard& shard) { return criterion_(ddp_(shard.data), shard.target); };
    run_shards(ddp_, batch, loss, *scaler_);
  }
  const Timed timed(meter_.time.step);
  optimizer_->set_lr(rate(number));
  scaler_->step(*optimizer_, {.max_norm = options_.clip_grad_norm.value_or(0)});
  scaler_->update();
  meter_.samples += ddp_.last_record().samples;
}

// What is due then. Returns whether it was all done: a signal ends an evaluation, which the next start begins anew.
bool Loop::after_step(std::int64_t number, const StepPlace& place) {
  const bool last = number == run_.total_steps || out_of_time_;
  if (number % options_.print_freq == 0 || last) report(number, place);
  std::optional<EvalEvent> found;
  if (options_.eval && (place.ends_epoch || last)) {
    try {
      found = evaluate(number, place);
    } catch (const evaluation::Stopped&) {
      return false;
    }
    // What a limit of time or steps puts into an epoch is no decision: the run that goes on has not met it.
    if (place.ends_epoch) judge_.heed(*found);
  }
  checkpoints_.after_step(number, place, last || judge_.ends_run(), found);
  tell_of_checkpoints();
  return true;
}

void Loop::tell_of_checkpoints() {
  for (const SaveEvent& saved : checkpoints_.news()) observers_->saved(saved);
}

double Loop::rate(std::int64_t number) const {
  return is_plateau(options_.lr_schedule) ? judge_.lr() : schedule_(number + run_.ahead);
}

void Loop::report(std::int64_t number, const StepPlace& place) {
  const state::StepRecord record = ddp_.last_record();
  TrainEvent event{.step = number,
                   .epoch = place.epoch + 1,
                   .loss = record.loss,
                   .lr = rate(number),
                   .gradient_norm = options_.clip_grad_norm ? std::optional(record.gradient_norm) : std::nullopt,
                   .exchange = meter_.untold_exchange(ddp_.debug().logging_data().all.exchange),
                   .input = meter_.untold(work_of(batches_->statistics())),
                   .memory_bytes = memory_of_all(group_),
                   .stores = ddp_.debug().stores(),
                   .loss_scale = scaler_->get_scale()};
  meter_.tell(event);
  observers_->trained(event);
}

EvalEvent Loop::evaluate(std::int64_t number, const StepPlace& place) {
  const auto forward = [this](const at::Tensor& pictures) { return ddp_(pictures).cpu(); };
  const auto evaluated = [&] { return evaluate_task(options_, input_, *model_, group_, forward); };
  EvalEvent event{.step = number, .epoch = place.epoch + 1, .evaluation = evaluated()};
  if (options_.model_ema.on) {
    const auto average = ddp_.ema().use();
    event.ema = evaluated();
  }
  observers_->evaluated(event);
  return event;
}

}  // namespace lockstep::train
