#include "lockstep/train/report.h"

#include <torch/version.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/cores.h"
#include "lockstep/base/outlet.h"
#include "lockstep/metrics/csv.h"
#include "lockstep/metrics/jsonl.h"
#include "lockstep/metrics/progress.h"
#include "lockstep/metrics/run_directory.h"
#include "lockstep/metrics/tensorboard.h"
#include "lockstep/rendezvous/run_id.h"
#include "lockstep/train/hints.h"

namespace lockstep::train {
namespace {

using metrics::Kind;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

using Fields = std::vector<std::pair<std::string, metrics::Value>>;

// No samples, no rate: 0 would be one.
void add_rate(Fields& fields, std::int64_t samples, double seconds) {
  if (samples > 0 && seconds > 0) fields.emplace_back("samples_per_second", double(samples) / seconds);
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string config_json(const Options& options) {
  const nlohmann::ordered_json config{
      {"model", options.model},
      {"dataset", options.dataset},
      {"data_path", options.data_path},
      {"index_cache", options.index_cache},
      {"transforms", options.transforms},
      {"train_crop_size", options.train_crop_size},
      {"val_resize_size", options.val_resize_size},
      {"val_crop_size", options.val_crop_size},
      {"interpolation", options.interpolation},
      {"auto_augment", options.auto_augment},
      {"random_erase", options.random_erase},
      {"mixup_alpha", options.mixup_alpha},
      {"cutmix_alpha", options.cutmix_alpha},
      {"cache_images", options.cache_images},
      {"workers", options.workers},
      {"epochs", or_null(options.epochs)},
      {"max_steps", or_null(options.max_steps)},
      {"batch_size", or_null(options.batch_size)},
      {"global_batch_size", or_null(options.global_batch_size)},
      {"logical_shards", or_null(options.logical_shards)},
      {"opt", options.opt},
      {"lr", options.lr},
      {"momentum", options.momentum},
      {"weight_decay", options.weight_decay},
      {"seed", options.seed},
      {"weights", options.weights},
      {"save_weights", options.save_weights},
      {"amp", options.amp},
      {"channels_last", options.channels_last},
      {"threads", options.threads},
      {"bind_to", options.bind_to},
      {"timeout", options.timeout},
      {"print_freq", options.print_freq},
      {"eval", options.eval},
  };
  return config.dump(2) + "\n";
}

class Silence final : public Report {
 public:
  void start(const RunSize&) override {}
  void train(const TrainEvent&) override {}
  void eval(std::int64_t, std::int64_t, const Evaluation&) override {}
  void done(const RunEnd&) override {}
};

class LeaderReport final : public Report {
 public:
  LeaderReport(const Options& options, const rendezvous::Place& place) : options_(options) {
    if (options.output_dir.empty()) return;
    directory_ = metrics::RunDirectory::create(
        options.output_dir, config_json(options),
        {.run_id = rendezvous::run_id(place), .attempt = place.restart_count, .overwrite = options.overwrite});
    sinks_.add(std::make_unique<metrics::JsonLines>(directory_->metrics_jsonl()));
    sinks_.add(std::make_unique<metrics::Csv>(directory_->metrics_csv()));
    sinks_.add(std::make_unique<metrics::TensorBoard>(directory_->path(), now()));
  }

  void start(const RunSize& size) override {
    if (size.total_steps > 0) {
      say_hint(idle_cores_hint(size.world_size, options_.threads, base::usable_cores()));
      say_hint(channels_last_hint(size.convolutions, options_.channels_last));
    }
    const std::int64_t per_epoch = size.train_samples > 0 ? steps_per_epoch(size.plan, size.train_samples) : 0;
    sinks_.add(std::make_unique<metrics::Progress>(
        STDOUT_FILENO,
        metrics::RunLength{.steps = size.total_steps,
                           .samples_per_step = size.plan.global_batch,
                           .epochs = per_epoch > 0 ? (size.total_steps + per_epoch - 1) / per_epoch : 0}));
    write(Kind::start, {{"model", options_.model},
                        {"dataset", options_.dataset},
                        {"optimizer", options_.opt},
                        {"world_size", std::int64_t(size.world_size)},
                        {"logical_shards", std::int64_t(size.plan.shards)},
                        {"global_batch_size", size.plan.global_batch},
                        {"amp", options_.amp},
                        {"channels_last", std::int64_t(options_.channels_last)},
                        {"threads", std::int64_t(options_.threads)},
                        {"seed", options_.seed},
                        {"steps", size.total_steps},
                        {"train_samples", size.train_samples},
                        {"page_size", size.page_size},
                        {"restart_count", std::int64_t(size.restart_count)},
                        {"first_step", size.first_step},
                        {"lockstep_version", std::string(LOCKSTEP_VERSION)},
                        {"torch_version", std::string(TORCH_VERSION)}});
  }

  void train(const TrainEvent& event) override {
    Fields fields{{"step", event.step}, {"epoch", event.epoch}, {"loss", event.loss}, {"lr", event.lr}};
    add_rate(fields, event.samples, event.time.total());
    if (event.samples > 0)
      fields.insert(fields.end(), {{"data_seconds", event.time.data},
                                   {"compute_seconds", event.time.compute},
                                   {"step_seconds", event.time.step},
                                   {"prepare_seconds", event.input.prepare},
                                   {"decode_seconds", event.input.decode}});
    if (!event.stores.empty()) fields.emplace_back("stores", event.stores);
    write(Kind::train, std::move(fields));
  }

  void eval(std::int64_t epoch, std::int64_t step, const Evaluation& evaluation) override {
    write(Kind::eval, {{"step", step},
                       {"epoch", epoch},
                       {"loss", evaluation.loss},
                       {"top1", evaluation.top1},
                       {"samples", evaluation.samples}});
  }

  void done(const RunEnd& end) override {
    Fields fields{{"seconds", end.seconds}, {"steps", end.steps}, {"attempt_steps", end.attempt_steps}};
    add_rate(fields, end.samples, end.training_seconds);
    fields.emplace_back("weights_hash", end.weights_hash);
    write(Kind::done, std::move(fields));
  }

 private:
  static void say_hint(const std::string& hint) {
    if (!hint.empty()) base::Outlet::console(STDERR_FILENO).offer(hint + "\n");
  }

  void write(Kind kind, Fields fields) { sinks_.write({.kind = kind, .time = now(), .fields = std::move(fields)}); }

  const Options& options_;
  std::optional<metrics::RunDirectory> directory_;  // its lock
  metrics::MultiSink sinks_;
};

}  // namespace

std::unique_ptr<Report> make_report(const Options& options, const rendezvous::Place& place) {
  if (place.rank != 0) return std::make_unique<Silence>();
  return std::make_unique<LeaderReport>(options, place);
}

}  // namespace lockstep::train
