#include "lockstep/train/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agree.h"
#include "lockstep/checkpoint/store/aside_folder.h"
#include "lockstep/checkpoint/store/state_json.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/train/meter.h"
#include "lockstep/train/rate_schedule.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

std::string checkpoint_folder(const std::string& output_dir) { return output_dir + "/checkpoints"; }

// "lr was 0.1, now 0.2; ..." of what both have, but for `others`.
std::string differences(const json& theirs, const json& ours, const std::vector<std::string>& others = {}) {
  std::string text;
  if (!theirs.is_object()) return text;
  for (const auto& [key, value] : ours.items())
    if (theirs.contains(key) && theirs[key] != value && std::ranges::find(others, key) == others.end())
      text += (text.empty() ? "" : "; ") + key + " was " + theirs[key].dump() + ", now " + value.dump();
  return text;
}

// What `text` has under that key; null where it has none, as a program's own JSON or that of an earlier version.
json part_of(const std::string& text, const char* key) {
  const json all = json::parse(text);
  return all.is_object() && all.contains(key) ? all[key] : json();
}

// JSON has no words for what is no number.
json number(double value) { return std::isfinite(value) ? json(value) : json(); }

// The GPUs of a run are as any other's.
std::string device_type(const std::string& device) { return device == "cpu" ? "cpu" : "cuda"; }

// What a checkpoint says of its run; what must be the same in the one that goes on.
std::string facts_of(const Options& options, const RunSize& run, const Input& input) {
  return json{{"model", options.model},
              {"dataset", options.dataset},
              {"optimizer", options.opt},
              {"loss", options.loss},
              {"head", options.head},
              {"monitor", options.checkpoints.monitor},
              {"freeze", options.freeze},
              {"seed", options.seed},
              {"logical_shards", run.plan.shards},
              {"global_batch_size", run.plan.global_batch},
              {"train_samples", run.train_samples},
              {"entries", input.train_set.entries},
              {"ra_sampler", options.ra_sampler},
              {"ra_reps", options.ra_reps},
              {"row_slices", options.slice_rows ? run.plan.shards : 0},
              {"arithmetic", options.arithmetic},
              {"fuse", options.fuse},
              {"replicas", options.replicas.value_or(1)},
              {"threads", options.threads},
              {"device", device_type(options.device)}}
      .dump();
}

// Whether the run may have lost its state in memory, though its job goes on: it has saved since, perhaps. Collective
// then, for a node that has come since may know of no start before.
bool goes_back(const Options& options, const RunSize& run, comm::Group& group) {
  if (options.zero1 == "none" || !saves(options.checkpoints, options.output_dir)) return false;
  const bool again = run.restart_count > 0 || group.node().member.generation() > 1;
  const std::vector<std::string> all = comm::all_gather_bytes(group, again ? "again" : "");
  return std::ranges::any_of(all, [](const std::string& told) { return !told.empty(); });
}

// Where to look, and for what: a run's directory may be given in its checkpoints' place.
std::pair<std::string, std::string> place_of(const Options& options) {
  const std::string& which = options.checkpoints.resume;
  if (continues_its_directory(options.checkpoints)) return {checkpoint_folder(options.output_dir), which};
  return {"", checkpoint::checkpoints_below(which)};
}

}  // namespace

checkpoint::Retention retention_of(const CheckpointOptions& options) {
  return {.keep = options.hist, .best = options.best, .smaller_is_better = smaller_is_better(options)};
}

bool is_due(const SaveEvery& every, std::int64_t step, const StepPlace& place, double seconds) {
  switch (every.unit) {
    case SaveEvery::Unit::never:
      return false;
    case SaveEvery::Unit::steps:
      return step % every.count == 0;
    case SaveEvery::Unit::seconds:
      return seconds >= double(every.count);
    case SaveEvery::Unit::epochs:
      return place.ends_epoch && (place.epoch + 1) % every.count == 0;
  }
  return false;
}

double monitored(const CheckpointOptions& options, const EvalEvent& event) {
  const Evaluation& found = options.monitor.starts_with("ema_") ? event.ema.value() : event.evaluation;
  if (options.monitor.ends_with("loss")) return found.loss;
  if (!found.errors) return options.monitor.ends_with("top5") ? found.top5 : found.top1;
  return options.monitor.ends_with("mae") ? found.errors->mae : found.errors->r2;
}

std::string schedule_json(const Options& options, std::int64_t epochs) {
  const LrOptions& lr = options.lr_schedule;
  json all = {{"lr", options.lr}, {"lr_scheduler", lr.scheduler}, {"lr_warmup_epochs", lr.warmup_epochs}};
  if (lr.warmup_epochs > 0) all.update({{"lr_warmup_method", lr.warmup_method}, {"lr_warmup_decay", lr.warmup_decay}});
  if (lr.scheduler == "steplr") all["lr_step_size"] = lr.step_size;
  if (lr.scheduler == "multisteplr") all["lr_milestones"] = lr.milestones;
  if (lr.scheduler == "cosineannealinglr") all["epochs_in_run"] = epochs;
  if (is_plateau(lr)) all["lr_patience"] = lr.patience;
  if (is_plateau(lr) || lr.scheduler == "cosineannealinglr") all["lr_min"] = lr.min;
  if (lr.scheduler != "constant" && lr.scheduler != "cosineannealinglr") all["lr_gamma"] = lr.gamma;
  return all.dump();
}

std::string training_json(const Options& options) {
  const json all = json::parse(options_json(options));
  json some = json::object();
  for (const char* key : {"momentum",
                          "weight_decay",
                          "norm_weight_decay",
                          "bias_weight_decay",
                          "transformer_embedding_decay",
                          "clip_grad_norm",
                          "class_weights",
                          "label_smoothing",
                          "transforms",
                          "train_crop_size",
                          "interpolation",
                          "auto_augment",
                          "ra_magnitude",
                          "augmix_severity",
                          "random_erase",
                          "mixup_alpha",
                          "cutmix_alpha",
                          "amp",
                          "channels_last",
                          "sync_bn",
                          "reduction",
                          "compression"})
    if (all.contains(key)) some[key] = all[key];
  return some.dump();
}

std::string evaluation_json(const Options& options, const Input& input) {
  json some = json::object();
  if (!options.eval) return some.dump();
  some["val_entries"] = input.test_set.entries;
  const json all = json::parse(options_json(options));
  for (const char* key : {"val_split", "val_fraction", "limit_val_batches", "val_resize_size", "val_crop_size"})
    if (all.contains(key)) some[key] = all[key];
  return some.dump();
}

std::string average_json(const Options& options, std::int64_t global_batch, std::int64_t epochs) {
  if (!options.model_ema.on) return "{}";
  return json{{"decay", ema_decay(options.model_ema, global_batch, epochs)}, {"steps", options.model_ema.steps}}.dump();
}

std::string standing_json(const Options& options, const Judgement& judgement, const amp::GradScaler& scaler) {
  json all = json::object();
  if (is_plateau(options.lr_schedule))
    all["plateau"] = {{"best", number(judgement.plateau.best)},
                      {"bad_evaluations", judgement.plateau.num_bad_epochs},
                      {"reductions", judgement.plateau.reductions}};
  if (options.patience > 0)
    all["patience"] = {{"monitor", options.checkpoints.monitor},
                       {"best", number(judgement.best)},
                       {"evaluations_since", judgement.worse}};
  if (scaler.is_enabled()) all["loss_scale"] = scaler.get_scale();
  return all.dump();
}

std::string device_change(const std::string& theirs, const std::string& device) {
  const json all = json::parse(theirs);
  if (!all.is_object()) return "";
  const std::string before = all.value("device", "cpu"), now = device_type(device);
  return before == now ? "" : "device was " + before + ", now " + now;
}

std::string part_change(const std::set<std::string>& theirs, const std::set<std::string>& ours) {
  std::vector<std::string> found;
  for (const auto& [part, flags] :
       {std::pair("scaler", "--amp fp16"), std::pair("judgement", "--patience or --lr-scheduler reducelronplateau")}) {
    const std::string name = part, by = flags;
    if (!theirs.contains(name) && ours.contains(name))
      found.push_back("it has no '" + name + "', which this run has by " + by + ": leave that out");
    if (theirs.contains(name) && !ours.contains(name))
      found.push_back("it has a '" + name + "', which this run has only by " + by + ": give that");
  }
  return base::join(found, "; ");
}

Checkpoints::Checkpoints(const Options& options, parallel::Engine& engine, const RunSize& run, const Input& input,
                         const Judge& judge, const amp::GradScaler& scaler)
    : options_(options),
      engine_(engine),
      run_(run),
      judge_(judge),
      scaler_(scaler),
      facts_(facts_of(options, run, input)),
      training_(training_json(options)),
      evaluation_(evaluation_json(options, input)) {
  if (saves(options.checkpoints, options.output_dir) && run.total_steps > 0)
    saver_.emplace(checkpoint_folder(options.output_dir), engine, retention_of(options.checkpoints),
                   checkpoint::Hold::at_first_save);  // until guard() the lock of the directory is enough
  if (!options.test_only) resume();
}

checkpoint::Resumed Checkpoints::find_start() const {
  if (goes_back(options_, run_, engine_.group())) {
    const auto own = checkpoint::resume(checkpoint_folder(options_.output_dir), engine_, "auto");
    if (own.in_memory || !own.path.empty()) return own;
  }
  if (options_.checkpoints.resume.empty()) return {};
  const auto [folder, which] = place_of(options_);
  return checkpoint::resume(folder, engine_, which);
}

void Checkpoints::resume() {
  const checkpoint::Resumed resumed = find_start();
  if (resumed.path.empty()) return;
  resumed_step_ = std::int64_t(resumed.step);
  resumed_from_ = resumed.path;
  theirs_ = resumed.extra;
  const json theirs = json::parse(resumed.extra), ours = json::parse(facts_);
  told_ = !theirs.is_object() || theirs.value("told", true);
  // The loader goes on with another batch and number of shards; the state is the same on all devices.
  if (const std::string other = differences(theirs, ours, {"logical_shards", "global_batch_size", "device"});
      !other.empty())
    throw UsageError("--resume: checkpoint '" + resumed.path + "' is of another run: " + other);
  check_parts(resumed.path);
}

// Before the state is filled, which knows names of bytes and no flags. Collective: the file is rank 0's.
void Checkpoints::check_parts(const std::string& path) const {
  std::string other;
  comm::or_abort(engine_.group(), [&] {
    if (engine_.group().rank() != 0) return;
    std::set<std::string> theirs, ours;
    const checkpoint::SavedState saved = checkpoint::read_state(path);
    for (const auto& [name, bytes] : saved.kept) theirs.insert(name);
    for (const auto& [name, memory] : engine_.state().kept()) ours.insert(name);
    other = part_change(theirs, ours);
  });
  other = comm::broadcast_bytes(engine_.group(), other);
  if (!other.empty()) throw UsageError("--resume: checkpoint '" + path + "' does not fit: " + other);
}

std::int64_t Checkpoints::epochs() const {
  return epochs_in_run(options_, run_.epoch_steps, run_.total_steps + run_.ahead);
}

void Checkpoints::describe_start(RunSize& run) const {
  const auto other = [this](const char* part, const std::string& ours) {
    return differences(part_of(theirs_, part), json::parse(ours));
  };
  run.resumed_from = resumed_from_;
  run.other_schedule = other("schedule", schedule_json(options_, epochs()));
  run.other_average = other("average", average_json(options_, run_.plan.global_batch, epochs()));
  run.other_training = other("training", training_);
  run.other_evaluation = other("evaluation", evaluation_);
  run.other_device = device_change(theirs_, options_.device);
}

void Checkpoints::guard() {
  if (!saver_) return;
  const std::string folder = checkpoint_folder(options_.output_dir);
  if (engine_.group().rank() == 0) checkpoint::hold_or_abort(folder, engine_.group());
  checkpoint::SaveOptions later = what(false);
  json extra = json::parse(later.extra);
  extra.erase("standing");  // of now, not of then
  later.extra = extra.dump();
  checkpoint::save_on_failure(folder, engine_, later);
}

void Checkpoints::after_step(std::int64_t step, const StepPlace& place, bool last,
                             const std::optional<EvalEvent>& found) {
  if (!saver_ || (step == resumed_step_ && told_)) return;
  const SaveEvery& every = options_.checkpoints.save_every;
  // Steps and seconds hardly ever fall due where an epoch ends, so that nothing would be known of any but the last.
  const bool rated = found && place.ends_epoch && every.unit != SaveEvery::Unit::epochs;
  if (!last && !rated && !is_due(every, step, place, seconds_since(last_save_))) return;
  // The last one, and what an evaluation was of, are not left out: no later one has those weights. For the second not
  // so long that the other ranks give this one up.
  if (last) saver_->wait_together();
  if (found && place.ends_epoch) saver_->wait_for(engine_.group().node().member.timeout() / 4);
  checkpoint::SaveOptions now = what(true);
  if (found) now.metric = monitored(options_.checkpoints, *found);
  begin(now, last);
  if (last) is_last_lost_ = !saver_->wait_together().problem.empty();
}

void Checkpoints::begin(const checkpoint::SaveOptions& now, bool awaited) {
  hear();  // of the one before
  const bool began = saver_->save(now, awaited);
  // Of one left out, too: else each step is due until the other has ended.
  last_save_ = std::chrono::steady_clock::now();
  if (began) hear();  // it may have ended just now
}

void Checkpoints::hear() {
  if (!saver_) return;
  if (const auto saved = saver_->ended(); saved && !saved->path.empty())
    news_.push_back(
        {.step = std::int64_t(saved->step), .path = saved->path, .skipped = std::int64_t(saver_->skipped())});
}

std::vector<SaveEvent> Checkpoints::news() {
  hear();
  return std::exchange(news_, {});
}

std::string Checkpoints::save_and_stop() {
  // No step was taken, and all is there that belongs to it: its metric, too, which nobody would find again.
  if (continues_its_directory(options_.checkpoints) && told_ && resumed_step_ == std::int64_t(engine_.steps()))
    return resumed_from_;
  const checkpoint::Saved before = saver_->wait_together();
  // Rank 0 alone knows whether it is there, and tells the others, who may have to send it what they have.
  const bool is_there = !before.path.empty() && before.step == engine_.steps();
  if (comm::broadcast_bytes(engine_.group(), is_there ? "there" : "").empty()) begin(what(false), true);
  return saver_->wait_together().path;
}

// With the facts, how the rate goes and a step is computed, and whether a step was told and evaluated before it was
// saved.
checkpoint::SaveOptions Checkpoints::what(bool told) const {
  json all = json::parse(facts_);
  all["told"] = told;
  all["schedule"] = json::parse(schedule_json(options_, epochs()));
  all["training"] = json::parse(training_);
  all["evaluation"] = json::parse(evaluation_);
  if (options_.model_ema.on) all["average"] = json::parse(average_json(options_, run_.plan.global_batch, epochs()));
  all["standing"] = json::parse(standing_json(options_, judge_.judgement(), scaler_));
  return {.extra = all.dump(),
          .retention = retention_of(options_.checkpoints),
          .place = checkpoint::place_of("loader", data::DataLoader::place_in_kept())};
}

void remove_checkpoints(const std::string& output_dir) {
  const std::string folder = checkpoint_folder(output_dir);
  for (const std::uint64_t step : checkpoint::steps_in(folder))
    checkpoint::remove_folder(folder, checkpoint::step_name(step));
  for (const char* link : {checkpoint::kLastName, checkpoint::kBestName}) {
    std::error_code ignored;
    std::filesystem::remove(folder + "/" + link, ignored);
  }
}

}  // namespace lockstep::train
