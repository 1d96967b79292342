#include "lockstep/train/options_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

std::string text_of(const SaveEvery& every) {
  switch (every.unit) {
    case SaveEvery::Unit::never:
      return "0";
    case SaveEvery::Unit::steps:
      return std::to_string(every.count);
    case SaveEvery::Unit::seconds:
      return std::to_string(every.count) + "s";
    case SaveEvery::Unit::epochs:
      return std::to_string(every.count) + "ep";
  }
  return "";
}

SaveEvery read_every(const std::string& name, const std::string& value) {
  SaveEvery every{.count = -1};
  const char* const end = value.data() + value.size();
  const auto [unit, error] = std::from_chars(value.data(), end, every.count);
  const std::string word(unit, end);
  every.unit = word == "s" ? SaveEvery::Unit::seconds : word == "ep" ? SaveEvery::Unit::epochs : SaveEvery::Unit::steps;
  const bool known = word.empty() || word == "s" || word == "ep";
  if (error != std::errc() || !known || every.count < 0)
    throw UsageError(name + " '" + value + "': wanted steps (100), seconds (30s) or epochs (2ep), or 0 for never");
  return every.count == 0 ? SaveEvery{.unit = SaveEvery::Unit::never} : every;
}

constexpr std::pair<const char*, int> kStopSignals[] = {
    {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT}, {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}};

std::string text_of(const std::vector<int>& signals) {
  std::vector<std::string> names;
  for (const int signal : signals)
    for (const auto& [name, number] : kStopSignals)
      if (number == signal) names.emplace_back(name);
  return base::join(names, ",");
}

std::vector<int> read_signals(const std::string& flag, const std::string& value) {
  std::vector<std::string> names;
  for (const auto& [name, number] : kStopSignals) names.emplace_back(name);
  std::vector<int> signals;
  std::istringstream words(value);
  for (std::string word; std::getline(words, word, ',');) {
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) throw UsageError(flag + ": " + base::unknown_name("signal", word, names));
    signals.push_back(kStopSignals[found - names.begin()].second);
  }
  if (signals.empty()) throw UsageError(flag + ": no signal given; wanted " + base::join(names, ", ") + " or several");
  return signals;
}

}  // namespace

bool saves(const CheckpointOptions& options, const std::string& output_dir) {
  return !output_dir.empty() && options.save_every.unit != SaveEvery::Unit::never;
}

bool continues_its_directory(const CheckpointOptions& options) {
  return options.resume == "auto" || options.resume == "last" || options.resume == "best";
}

bool smaller_is_better(const CheckpointOptions& options) {
  return options.monitor.ends_with("loss") || options.monitor.ends_with("mae");
}

const std::vector<std::string>& monitor_names() {
  static const std::vector<std::string> names = {"top1",     "top5",     "loss",     "mae",     "r2",
                                                 "ema_top1", "ema_top5", "ema_loss", "ema_mae", "ema_r2"};
  return names;
}

flags::Value save_every(SaveEvery& place) {
  return {.word = "N|Ns|Nep",
          .initial = text_of(place),
          .read = [&place](const std::string& name, const std::string& value) { place = read_every(name, value); },
          .json = [&place] { return "\"" + text_of(place) + "\""; }};
}

flags::Value signals(std::vector<int>& place) {
  return {.word = "NAME,NAME",
          .initial = text_of(place),
          .read = [&place](const std::string& name, const std::string& value) { place = read_signals(name, value); },
          .json = [&place] { return "\"" + text_of(place) + "\""; }};
}

}  // namespace lockstep::train
