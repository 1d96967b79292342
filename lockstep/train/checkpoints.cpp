#include "lockstep/train/checkpoints.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/store/aside_folder.h"
#include "lockstep/checkpoint/store/step_folders.h"
#include "lockstep/train/meter.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

std::string checkpoint_folder(const std::string& output_dir) { return output_dir + "/checkpoints"; }

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

Checkpoints::Checkpoints(const Options& options, parallel::Engine& engine, const RunSize& run, const Input& input)
    : options_(options), engine_(engine), facts_(facts(run, input)) {
  if (saves(options.checkpoints, options.output_dir) && run.total_steps > 0)
    saver_.emplace(checkpoint_folder(options.output_dir), engine, retention_of(options.checkpoints));
  if (!options.checkpoints.resume.empty()) resume();
}

std::string Checkpoints::facts(const RunSize& run, const Input& input) const {
  return json{{"model", options_.model},
              {"dataset", options_.dataset},
              {"optimizer", options_.opt},
              {"loss", options_.loss},
              {"head", options_.head},
              {"monitor", options_.checkpoints.monitor},
              {"freeze", options_.freeze},
              {"seed", options_.seed},
              {"logical_shards", run.plan.shards},
              {"global_batch_size", run.plan.global_batch},
              {"train_samples", run.train_samples},
              {"entries", input.train_set.entries},
              {"ra_sampler", options_.ra_sampler},
              {"ra_reps", options_.ra_reps},
              {"arithmetic", options_.arithmetic},
              {"fuse", options_.fuse},
              {"replicas", options_.replicas.value_or(1)},
              {"threads", options_.threads}}
      .dump();
}

void Checkpoints::resume() {
  const auto [folder, which] = place_of(options_);
  const checkpoint::Resumed resumed = checkpoint::resume(folder, engine_, which);
  if (resumed.path.empty()) return;
  resumed_step_ = std::int64_t(resumed.step);
  resumed_from_ = resumed.path;
  const json theirs = json::parse(resumed.extra), ours = json::parse(facts_);
  told_ = !theirs.is_object() || theirs.value("told", true);
  std::string differences;
  // The loader goes on with another batch and number of shards.
  const auto may_differ = [](const std::string& key) { return key == "logical_shards" || key == "global_batch_size"; };
  for (const auto& [key, value] : ours.items())
    if (theirs.is_object() && theirs.contains(key) && theirs[key] != value && !may_differ(key))
      differences += (differences.empty() ? "" : "; ") + key + " was " + theirs[key].dump() + ", now " + value.dump();
  if (!differences.empty())
    throw UsageError("--resume: checkpoint '" + resumed.path + "' is of another run: " + differences);
}

void Checkpoints::guard() {
  if (saver_) checkpoint::save_on_failure(checkpoint_folder(options_.output_dir), engine_, what(false));
}

void Checkpoints::after_step(std::int64_t step, const StepPlace& place, bool last,
                             const std::optional<EvalEvent>& found) {
  if (!saver_ || (step == resumed_step_ && told_)) return;
  if (!last && !is_due(options_.checkpoints.save_every, step, place, seconds_since(last_save_))) return;
  if (last) saver_->wait();  // so that it is not left out
  checkpoint::SaveOptions now = what(true);
  if (found) now.metric = monitored(options_.checkpoints, *found);
  begin(step, now);
  if (last) saver_->wait();
}

void Checkpoints::begin(std::int64_t step, const checkpoint::SaveOptions& now) {
  hear();  // of the one before
  if (!saver_->save(now)) return;
  last_save_ = std::chrono::steady_clock::now();
  saved_step_ = step;
}

void Checkpoints::hear() {
  if (!saver_) return;
  if (const auto saved = saver_->ended(); saved && !saved->path.empty())
    news_.push_back({.step = saved_step_, .path = saved->path, .skipped = std::int64_t(saver_->skipped())});
}

std::vector<SaveEvent> Checkpoints::news() {
  hear();
  return std::exchange(news_, {});
}

std::string Checkpoints::save_and_stop() {
  const checkpoint::Saved before = saver_->wait();
  if (saved_step_ == std::int64_t(engine_.steps()) && before.problem.empty()) return before.path;
  begin(std::int64_t(engine_.steps()), what(false));
  return saver_->wait().path;
}

// With the facts, and whether a step was told and evaluated before it was saved.
checkpoint::SaveOptions Checkpoints::what(bool told) const {
  json all = json::parse(facts_);
  all["told"] = told;
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
