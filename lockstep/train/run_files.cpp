#include "lockstep/train/run_files.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/machine_lock.h"

namespace lockstep::train {

RunFiles::RunFiles(const Options& options, const Options& record, const metrics::RunClaim& claim)
    : EventObserver(options), hparams_(hparams_of(record)), files_(options.output_dir, options_json(record), claim) {}

void RunFiles::started(const RunSize& run) {
  EventObserver::started(run);
  files_.tensorboard().begin_hparams(hparams_);
}

void RunFiles::finished(const RunEnd& end) {
  EventObserver::finished(end);
  files_.tensorboard().end_hparams();
}

void RunFiles::evaluated(const EvalEvent& event) {
  EventObserver::evaluated(event);
  if (!event.evaluation.answers || !event.part.empty()) return;
  std::vector<metrics::MistakePicture> pictures;
  for (const WrongAnswer& mistake : event.evaluation.answers->mistakes)
    if (!mistake.picture.empty()) pictures.push_back({mistake.sample, mistake.picture});
  if (!pictures.empty()) files_.show_mistakes(event.step, pictures);
}

std::chrono::milliseconds lock_patience(const Options& options) {
  constexpr double kOfEachSecond = 750;  // milliseconds
  const double longest = double(base::kLostMachine.count());
  return std::chrono::milliseconds(std::int64_t(std::min(options.timeout * kOfEachSecond, longest)));
}

bool differs_in_processes_alone(std::string_view there, std::string_view now) {
  auto before = nlohmann::json::parse(there, nullptr, /*allow_exceptions=*/false);
  auto after = nlohmann::json::parse(now);
  if (!before.is_object()) return false;
  before.erase("nproc_per_node");
  after.erase("nproc_per_node");
  return before == after;
}

metrics::Hyperparameters hparams_of(const Options& record) {
  metrics::Hyperparameters hparams;
  const auto flags = nlohmann::json::parse(options_json(record));
  for (const auto& [key, value] : flags.items()) {
    if (value.is_boolean()) hparams[key] = value.get<bool>();
    if (value.is_number()) hparams[key] = value.get<double>();
    if (value.is_string() && value != "") hparams[key] = value.get<std::string>();
  }
  return hparams;
}

std::optional<double> seconds_since_written(const Options& options) {
  if (options.output_dir.empty()) return {};
  std::error_code error;
  const auto written = std::filesystem::last_write_time(options.output_dir + "/metrics.jsonl", error);
  if (error) return {};
  const std::chrono::duration<double> since = std::filesystem::file_time_type::clock::now() - written;
  return std::max(0.0, since.count());  // the file's clock is the coarser one
}

}  // namespace lockstep::train
