#include "lockstep/page/read_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::page {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLongestPicture = 1 << 16;  // more than 64x64 pixels take
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Numbers that JSON does not know are words.
bool is_number_word(const json& value) {
  return value == "nan" || value == "-nan" || value == "inf" || value == "-inf";  // "-nan" in older files
}

// Whoever walks a tree calls itself for each level of it.
json parse(std::istream& text) {
  constexpr int kDeepest = 8;
  return json::parse(text, [](int depth, json::parse_event_t, const json& value) {
    if (depth > kDeepest) throw json::other_error::create(501, "nested too deep", &value);
    return true;
  });
}

// Of a number that is one, and no larger than a double counts exactly.
std::int64_t whole(const json& value) {
  constexpr double kMost = 9007199254740992.0;
  return std::int64_t(std::clamp(value.get<double>(), -kMost, kMost));
}

std::int64_t whole_at(const json& event, const char* name, std::int64_t otherwise) {
  return event.contains(name) ? whole(event.at(name)) : otherwise;
}

void add(Points& points, double step, double value) {
  // What a restart tells once more stands where it stood.
  while (!points.empty() && points.back().step >= step) points.pop_back();
  points.push_back({step, value});
}

void add_numbers(std::map<std::string, Points>& all, const json& event) {
  const double step = event.at("step");
  for (const auto& [name, value] : event.items()) {
    if (name == "step" || name == "time" || name == "epoch" || name == "event" || name == "samples") continue;
    if (value.is_number()) add(all[name], step, value);
    if (is_number_word(value)) add(all[name], step, kNone);
  }
}

void add_start(RunRecord& run, const json& event) {
  run.starts.push_back({.restart_count = whole_at(event, "restart_count", 0),
                        .first_step = whole_at(event, "first_step", 1),
                        .time = event.at("time"),
                        .skipped_before = run.saves.empty() ? 0 : run.saves.back().skipped});
  if (run.starts.size() > 1) return;
  for (const auto& [name, value] : event.items())
    if (name != "event" && name != "time")
      run.facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
}

// A number of `classes` at a place of a list.
std::int64_t class_at(const json& list, std::size_t place, const Answers& answers) {
  const std::int64_t number = whole(list.at(place));
  if (number < 0 || number >= std::int64_t(answers.classes.size()))
    throw json::other_error::create(501, "no such class", &list);
  return number;
}

Answers answers_of(const json& event) {
  Answers answers{.step = whole(event.at("step")), .classes = event.at("classes").get<std::vector<std::string>>()};
  const json none = json::array();
  const json& cells = event.contains("confusion") ? event.at("confusion") : none;
  for (std::size_t i = 0; i < cells.size(); i += 3)
    answers.cells.push_back({class_at(cells, i, answers), class_at(cells, i + 1, answers),
                             std::max<std::int64_t>(whole(cells.at(i + 2)), 0)});
  const json& counts = event.contains("class_samples") ? event.at("class_samples") : none;
  if (counts.size() > answers.classes.size()) throw json::other_error::create(501, "no such class", &counts);
  for (std::size_t i = 0; i < counts.size(); ++i)
    answers.by_class.push_back({whole(counts[i]), whole(event.at("class_right").at(i))});
  const json& samples = event.at("mistake_samples");
  for (std::size_t i = 0; i < samples.size(); ++i)
    answers.mistakes.push_back({whole(samples[i]), class_at(event.at("mistake_truths"), i, answers),
                                class_at(event.at("mistake_predictions"), i, answers),
                                event.at("mistake_shares").at(i).get<double>(), event.at("mistake_files").at(i)});
  return answers;
}

// Each start counts from 0 what it leaves out.
void add_save(RunRecord& run, const json& event) {
  constexpr std::int64_t kMost = std::int64_t(1) << 53;
  const std::int64_t before = run.starts.empty() ? 0 : run.starts.back().skipped_before;
  run.saves.push_back({.step = whole(event.at("step")),
                       .skipped = std::clamp<std::int64_t>(before + whole_at(event, "skipped", 0), 0, kMost)});
}

void add_event(RunRecord& run, const json& event) {
  const std::string kind = event.at("event");
  if (kind == "answers") run.answers = answers_of(event);
  if (kind == "start") add_start(run, event);
  if (kind == "checkpoint") add_save(run, event);
  if (kind == "fault")
    run.faults.push_back({.cause = event.contains("cause") ? event.at("cause").get<std::string>() : "",
                          .time = event.at("time"),
                          .lost = event.contains("lost_seconds") ? event.at("lost_seconds").get<double>() : kNone});
  if (kind == "done") {
    run.done = true;
    run.weights_hash = event.value("weights_hash", "");
    run.steps = whole(event.at("steps"));
  } else {
    run.done = false;  // another start went on
  }
  if (kind == "train" || (kind == "eval" && !event.contains("best_on"))) {
    add_numbers(kind == "train" ? run.train : run.eval, event);
    run.steps = whole(event.at("step"));
  } else if (kind == "eval") {
    for (const auto& [name, value] : event.items())
      if (value.is_number() && name != "time") run.best_eval[name] = value;
  }
}

std::string file_of(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? (fs::path(path) / "metrics.jsonl").string() : path;
}

// "runs/a/" and "runs/a/metrics.jsonl" are a.
std::string name_of(const std::string& file) {
  const std::string folder = fs::weakly_canonical(file).parent_path().filename().string();
  return fs::path(file).filename() == "metrics.jsonl" && !folder.empty() ? folder : fs::path(file).stem().string();
}

[[noreturn]] void refuse_line(const std::string& file, std::size_t line, const std::string& text) {
  constexpr std::size_t kMost = 60;
  throw UsageError(base::shown(file) + ":" + std::to_string(line) + ": '" + base::shown(text.substr(0, kMost)) +
                   "' is no event of a run");
}

bool is_base64(const std::string& text) {
  return !text.empty() && text.size() <= kLongestPicture &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
             std::string::npos;
}

// A run that is looked at while it goes on may have told of an evaluation whose pictures are not there yet.
void add_pictures(Answers& answers, const json& shown) {
  if (whole(shown.at("step")) != answers.step) return;
  const json &samples = shown.at("samples"), &pictures = shown.at("pictures");
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string picture = pictures.at(i);
    if (!is_base64(picture)) throw json::other_error::create(501, "no picture", &pictures);
    for (Mistake& mistake : answers.mistakes)
      if (mistake.sample == whole(samples[i])) mistake.picture = picture;
  }
}

void read_pictures(RunRecord& run, const std::string& metrics) {
  const std::string file = (fs::path(metrics).parent_path() / "mistakes.json").string();
  std::ifstream stream(file, std::ios::binary);
  if (!stream || !run.answers) return;
  try {
    add_pictures(*run.answers, parse(stream));
  } catch (const json::exception&) {
    throw UsageError("'" + base::shown(file) + "': no pictures of a run's mistakes");
  }
}

}  // namespace

double RunRecord::last(const Points& points) { return points.empty() ? kNone : points.back().value; }

RunRecord read_run(const std::string& path) {
  const std::string file = file_of(path);
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    throw UsageError("'" + base::shown(file) + "': " + std::strerror(errno) + "; a run's directory expected");
  RunRecord run{.name = name_of(file)};
  double first = kNone, last = kNone;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    ++number;
    try {
      std::istringstream text(line);
      const json event = parse(text);
      last = event.at("time");
      if (std::isnan(first)) first = last;
      add_event(run, event);
    } catch (const json::exception&) {
      refuse_line(file, number, line);
    }
  }
  if (number == 0) throw UsageError("'" + base::shown(file) + "': no event in it");
  run.seconds = std::max(0.0, last - first);
  read_pictures(run, file);
  return run;
}

}  // namespace lockstep::page
