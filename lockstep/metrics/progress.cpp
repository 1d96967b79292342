#include "lockstep/metrics/progress.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "lockstep/base/terminal.h"

namespace lockstep::metrics {
namespace {

constexpr std::chrono::seconds kPatienceOfAFailure{1};

/// `value` by a printf format for a double.
std::string format(const char* pattern, double value) {
  if (std::isnan(value)) return "nan";
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

/// "3/10"; "3" when the total is not known.
std::string of(std::int64_t count, std::int64_t total) {
  return std::to_string(count) + (total > 0 ? "/" + std::to_string(total) : std::string());
}

std::string rate_text(const Event& event, const RunLength& run) {
  return format("%.0f", event.number("samples_per_second")) + " " + run.unit + "/s";
}

// By the rate, the time that is left.
std::string left_text(const Event& event, const RunLength& run) {
  if (event.find("samples_per_second") == nullptr || run.steps == 0 || run.samples_per_step == 0) return "";
  const double steps = static_cast<double>(run.steps - event.integer("step"));
  return "  ETA " +
         duration_text(steps * static_cast<double>(run.samples_per_step) / event.number("samples_per_second"));
}

// Of the time of the steps, what went by in waiting for batches.
std::string wait_text(const Event& event) {
  double all = 0;
  for (const char* part : {"data_seconds", "compute_seconds", "step_seconds"}) {
    if (event.find(part) == nullptr) return "";
    all += event.number(part);
  }
  return all > 0 ? "  data wait " + format("%.0f", 100 * event.number("data_seconds") / all) + " %" : "";
}

std::string memory_text(const Event& event) {
  if (event.find("memory_bytes") == nullptr) return "";
  constexpr double kMebibyte = 1 << 20;
  return "  " + format("%.0f", event.number("memory_bytes") / kMebibyte) + " MiB";
}

// What is known of a step, as far as it is.
std::string train_text(const Event& event, const RunLength& run, const std::optional<double>& accuracy) {
  std::string text = "epoch " + of(event.integer("epoch"), run.epochs) + "  step " +
                     of(event.integer("step"), run.steps) + "  loss " + format("%.4f", event.number("loss")) + "  lr " +
                     format("%.4g", event.number("lr"));
  if (accuracy) text += "  accuracy " + format("%.2f", 100 * *accuracy) + " %";
  if (event.find("samples_per_second") != nullptr) text += "  " + rate_text(event, run);
  return text + left_text(event, run) + wait_text(event) + memory_text(event);
}

// What the evaluation of a classifier found has words of its own; other numbers have their names.
std::string found_text(const Event& event) {
  const std::string samples = std::to_string(event.integer("samples"));
  if (event.find("top1") != nullptr && event.find("loss") != nullptr)
    return "loss " + format("%.4f", event.number("loss")) + ", accuracy " + format("%.2f", 100 * event.number("top1")) +
           " % of " + samples;
  std::string text;
  for (const auto& [name, value] : event.fields)
    if (const double* const number = std::get_if<double>(&value))
      text += (text.empty() ? "" : ", ") + name + " " + format("%.4g", *number);
  return text + " over " + samples + " samples";
}

std::string eval_text(const Event& event, const RunLength& run) {
  if (event.find("best_on") != nullptr)
    return "best checkpoint, of step " + std::to_string(event.integer("step")) + ", on " + event.text("best_on") +
           ": " + found_text(event);
  return "epoch " + of(event.integer("epoch"), run.epochs) + "  evaluation: " + found_text(event);
}

// Seconds and rate are those of the last start's steps, which need not be all.
std::string done_text(const Event& event, const RunLength& run) {
  const std::int64_t steps = event.integer("steps"), now = event.integer("attempt_steps");
  std::string text = "done: " + std::to_string(steps) + " steps";
  if (now != steps) text += ", " + std::to_string(now) + " of them since the restart,";
  text += " in " + format("%.1f", event.number("seconds")) + " s, ";
  if (event.find("samples_per_second") != nullptr) text += rate_text(event, run) + ", ";
  return text + "weights " + event.text("weights_hash");
}

std::string checkpoint_text(const Event& event) {
  const std::int64_t skipped = event.find("skipped") != nullptr ? event.integer("skipped") : 0;
  return "checkpoint at step " + std::to_string(event.integer("step")) + ": " + event.text("path") +
         (skipped > 0 ? "; left out so far, while another was written: " + std::to_string(skipped) : "");
}

std::string fault_text(const Event& event) {
  std::string text = "fault: " + (event.find("cause") != nullptr ? event.text("cause") : "not known of what");
  if (event.find("lost_seconds") != nullptr) text += "; " + format("%.1f", event.number("lost_seconds")) + " s lost";
  if (event.find("step") != nullptr) text += "; going on behind step " + std::to_string(event.integer("step"));
  return text;
}

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kCentury = 3.2e9;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kCentury) return "?";
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  const auto days = static_cast<long long>(whole / 86400), hours = static_cast<long long>(whole / 3600 % 24);
  const auto minutes = static_cast<long long>(whole / 60 % 60), rest = static_cast<long long>(whole % 60);
  char text[64];
  if (days > 0)
    std::snprintf(text, sizeof(text), "%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  else if (hours > 0)
    std::snprintf(text, sizeof(text), "%lld:%02lld:%02lld", hours, minutes, rest);
  else
    std::snprintf(text, sizeof(text), "%lld:%02lld", minutes, rest);
  return text;
}

std::string progress_text(const Event& event, const RunLength& run, const std::optional<double>& accuracy) {
  switch (event.kind) {
    case Kind::start:
    case Kind::answers:
      return "";
    case Kind::train:
      return train_text(event, run, accuracy);
    case Kind::eval:
      return eval_text(event, run);
    case Kind::checkpoint:
      return checkpoint_text(event);
    case Kind::fault:
      return fault_text(event);
    case Kind::done:
      return done_text(event, run);
  }
  return "";
}

std::string terminal_text(Kind kind, const std::string& text, int columns) {
  constexpr const char* kClearRest = "\x1b[K";
  if (kind != Kind::train) return "\r" + text + kClearRest + "\n";
  // A line that wraps could not be rewritten; the last column is left free as well.
  const std::size_t room = columns > 1 ? static_cast<std::size_t>(columns - 1) : text.size();
  return "\r" + text.substr(0, room) + kClearRest;
}

Progress::Progress(int fd, RunLength run)
    : fd_(fd), outlet_(base::Outlet::console(fd)), run_(run), terminal_(::isatty(fd) == 1) {}

Progress::~Progress() {
  if (line_open_) outlet_.say("\n");
  outlet_.flush(base::Outlet::Clock::now() + (done_ ? base::kPatience : kPatienceOfAFailure));
}

void Progress::write(const Event& event) {
  if (event.kind == Kind::eval && event.find("top1") != nullptr) accuracy_ = event.number("top1");
  const std::string text = progress_text(event, run_, accuracy_);
  if (text.empty()) return;
  const std::string shown = terminal_ ? terminal_text(event.kind, text, base::terminal_columns(fd_)) : text + "\n";
  if (event.kind == Kind::train) {
    // On a terminal it replaces the one before, and the cursor stays in it.
    if (outlet_.offer(shown)) line_open_ = terminal_;
    return;
  }
  // The last train line before anything else stays on the screen.
  outlet_.say((line_open_ ? "\n" : "") + shown);
  line_open_ = false;
  done_ = done_ || event.kind == Kind::done;
}

}  // namespace lockstep::metrics
