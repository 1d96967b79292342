#include "lockstep/train/events.h"

#include <torch/version.h>

#include <utility>
#include <vector>

namespace lockstep::train {
namespace {

using metrics::Kind;

using Fields = std::vector<std::pair<std::string, metrics::Value>>;

// No samples, no rate: 0 would be one.
void add_rate(Fields& fields, std::int64_t samples, double seconds) {
  if (samples > 0) fields.emplace_back("samples_per_second", double(samples) / seconds);
}

// Truth, prediction and count of each cell that is not 0.
std::vector<std::int64_t> cells_of(const Answers& answers) {
  const auto classes = std::int64_t(answers.classes.size());
  std::vector<std::int64_t> cells;
  for (std::int64_t place = 0; place < std::int64_t(answers.confusion.size()); ++place)
    if (const std::int64_t count = answers.confusion[std::size_t(place)]; count != 0)
      cells.insert(cells.end(), {place / classes, place % classes, count});
  return cells;
}

void add_found(Fields& fields, const std::string& prefix, const Evaluation& found) {
  fields.emplace_back(prefix + "loss", found.loss);
  if (!found.errors) {
    fields.emplace_back(prefix + "top1", found.top1);
    fields.emplace_back(prefix + "top5", found.top5);
    return;
  }
  fields.emplace_back(prefix + "mae", found.errors->mae);
  fields.emplace_back(prefix + "r2", found.errors->r2);
}

}  // namespace

metrics::Event start_event(const Options& options, const RunSize& run) {
  return {.kind = Kind::start,
          .fields = {{"model", options.model},
                     {"dataset", options.dataset},
                     {"optimizer", options.opt},
                     {"world_size", std::int64_t(run.world_size)},
                     {"logical_shards", std::int64_t(run.plan.shards)},
                     {"global_batch_size", run.plan.global_batch},
                     {"amp", options.amp},
                     {"channels_last", std::int64_t(options.channels_last)},
                     {"fuse", std::int64_t(options.fuse)},
                     {"threads", std::int64_t(options.threads)},
                     {"seed", options.seed},
                     {"steps", run.total_steps},
                     {"train_samples", run.train_samples},
                     {"page_size", run.page_size},
                     {"restart_count", std::int64_t(run.restart_count)},
                     {"first_step", run.first_step},
                     {"lockstep_version", std::string(LOCKSTEP_VERSION)},
                     {"torch_version", std::string(TORCH_VERSION)}}};
}

metrics::Event fault_event(const RunSize& run) {
  Fields fields{{"restart_count", std::int64_t(run.restart_count)}, {"step", run.first_step - 1}};
  if (!run.last_fault.empty()) fields.emplace_back("cause", run.last_fault);
  if (run.lost_seconds) fields.emplace_back("lost_seconds", *run.lost_seconds);
  return {.kind = Kind::fault, .fields = std::move(fields)};
}

metrics::Event train_event(const TrainEvent& event) {
  Fields fields{{"step", event.step}, {"epoch", event.epoch}, {"loss", event.loss}, {"lr", event.lr}};
  if (event.gradient_norm) fields.emplace_back("gradient_norm", *event.gradient_norm);
  add_rate(fields, event.samples, event.time.total());
  if (event.samples > 0)
    fields.insert(fields.end(), {{"data_seconds", event.time.data},
                                 {"compute_seconds", event.time.compute},
                                 {"step_seconds", event.time.step},
                                 {"prepare_seconds", event.input.prepare},
                                 {"decode_seconds", event.input.decode}});
  if (event.memory_bytes > 0) fields.emplace_back("memory_bytes", event.memory_bytes);
  if (!event.stores.empty()) fields.emplace_back("stores", event.stores);
  if (event.loss_scale != 1) fields.emplace_back("loss_scale", event.loss_scale);
  if (event.samples > 0) fields.emplace_back("exchange_seconds", event.exchange);
  return {.kind = Kind::train, .fields = std::move(fields)};
}

metrics::Event eval_event(const EvalEvent& event) {
  Fields fields{{"step", event.step}, {"epoch", event.epoch}};
  add_found(fields, "", event.evaluation);
  fields.emplace_back("samples", event.evaluation.samples);
  if (event.ema) add_found(fields, "ema_", *event.ema);
  if (!event.part.empty()) fields.emplace_back("best_on", event.part);
  return {.kind = Kind::eval, .fields = std::move(fields)};
}

metrics::Event answers_event(const EvalEvent& event) {
  const Answers& answers = event.evaluation.answers.value();
  Fields fields{{"step", event.step}, {"epoch", event.epoch}, {"classes", answers.classes}};
  if (!answers.confusion.empty()) fields.emplace_back("confusion", cells_of(answers));
  std::vector<std::int64_t> samples, truths, predictions;
  std::vector<double> shares;
  std::vector<std::string> files;
  for (const WrongAnswer& mistake : answers.mistakes) {
    samples.push_back(mistake.sample);
    truths.push_back(mistake.truth);
    predictions.push_back(mistake.prediction);
    shares.push_back(mistake.share);
    files.push_back(mistake.file);
  }
  fields.emplace_back("class_samples", answers.samples);
  fields.emplace_back("class_right", answers.right);
  fields.emplace_back("mistake_samples", std::move(samples));
  fields.emplace_back("mistake_truths", std::move(truths));
  fields.emplace_back("mistake_predictions", std::move(predictions));
  fields.emplace_back("mistake_shares", std::move(shares));
  fields.emplace_back("mistake_files", std::move(files));
  return {.kind = Kind::answers, .fields = std::move(fields)};
}

metrics::Event checkpoint_event(const SaveEvent& event) {
  return {.kind = Kind::checkpoint, .fields = {{"step", event.step}, {"path", event.path}, {"skipped", event.skipped}}};
}

metrics::Event done_event(const RunEnd& end) {
  Fields fields{{"seconds", end.seconds}, {"steps", end.steps}, {"attempt_steps", end.attempt_steps}};
  add_rate(fields, end.samples, end.training_seconds);
  fields.emplace_back("weights_hash", end.weights_hash);
  return {.kind = Kind::done, .fields = std::move(fields)};
}

void EventObserver::tell(metrics::Event event) {
  event.time = metrics::seconds_now();
  write(event);
}

}  // namespace lockstep::train
