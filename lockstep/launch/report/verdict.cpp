#include "lockstep/launch/report/verdict.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>

namespace lockstep::launch {
namespace {

// Wrong use or bad input, which the worker itself prints; more lines would only bury it.
bool told_all(const Verdict& verdict) { return is_bad_input(verdict) && !verdict.still_running; }

void blame(Verdict& verdict, const End& end) {
  verdict.end = end;
  verdict.still_running = false;
}

void blame_living(Verdict& verdict, int rank, int exit_code) {
  verdict.end = {.rank = rank, .exit_code = exit_code};
  verdict.still_running = true;
}

void blame_first_in_time(Verdict& verdict, const std::vector<End>& ends, const std::vector<Recorded>& recorded) {
  double earliest = std::numeric_limits<double>::infinity();
  const auto written = [&](int rank) { return std::ranges::find(recorded, rank, &Recorded::rank); };
  for (const End& end : ends) {
    const auto record = written(end.rank);
    const double when = record != recorded.end() ? record->when : end.when - (was_killed(end) ? kSlowDeath : 0);
    if (!end.failed() || when >= earliest) continue;
    earliest = when;
    blame(verdict, end);
  }
  for (const Recorded& record : recorded) {
    if (std::ranges::find(ends, record.rank, &End::rank) != ends.end() || record.when >= earliest) continue;
    earliest = record.when;
    blame_living(verdict, record.rank, kExitFailure);
  }
}

}  // namespace

std::string one_line(const std::string& text) {
  constexpr std::size_t kMost = 500;
  std::string line = text.substr(0, text.find('\n'));
  if (line.size() > kMost) line = line.substr(0, kMost) + " ...";
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return line;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string describe(const End& end) {
  return end.signal != 0 ? "killed by " + signal_name(end.signal) : "exit code " + std::to_string(end.exit_code);
}

int exit_code(const End& end) { return end.signal != 0 ? 128 + end.signal : end.exit_code; }

std::optional<Whereabouts> whereabouts(const base::ControlPage& page, int rank) {
  if (rank < 0 || rank >= page.local_world) return std::nullopt;
  const base::RankWords& words = page.ranks[rank];
  if (!base::has_joined(words, page.generation.load(std::memory_order_relaxed))) return std::nullopt;
  return Whereabouts{.step = words.step.load(std::memory_order_relaxed),
                     .phase = std::string(to_string(base::Phase(words.phase.load(std::memory_order_relaxed))))};
}

bool was_killed(const End& end) {
  constexpr std::array kOwnOrAgents{0, SIGABRT, SIGTERM, SIGINT, SIGHUP};
  return std::ranges::find(kOwnOrAgents, end.signal) == kOwnOrAgents.end();
}

Failure failure_of(const End& end, const std::optional<Whereabouts>& where) {
  Failure failure{.rank = end.rank, .cause = describe(end), .exit_code = exit_code(end)};
  if (where) {
    failure.step = where->step;
    failure.phase = where->phase;
  }
  return failure;
}

Verdict first_failure(const std::vector<End>& ends, const std::optional<Failure>& told,
                      const std::vector<Recorded>& recorded) {
  Verdict verdict{.told = told};
  blame_first_in_time(verdict, ends, recorded);
  if (told && told->rank >= 0) {
    const auto named = std::ranges::find(ends, told->rank, &End::rank);
    // One that ended well is not to blame, whatever a peer thought of its leaving.
    if (named == ends.end())
      blame_living(verdict, told->rank, told->exit_code);
    else if (named->failed())
      blame(verdict, *named);
  }
  // A failure told with exit code 0 is a failure all the same.
  verdict.code = exit_code(verdict.end) != 0 ? exit_code(verdict.end) : int(kExitFailure);
  return verdict;
}

std::string cause(const Verdict& verdict) {
  if (verdict.out_of_memory) return *verdict.out_of_memory;
  // A process that was killed could not say why: then the slot holds a peer's guess.
  const bool spoke = verdict.end.signal == 0 || verdict.end.signal == SIGABRT;
  if (verdict.told && spoke) return verdict.told->to_string();
  return verdict.error ? one_line(verdict.error->message) : std::string();
}

bool is_bad_input(const Verdict& verdict) {
  return verdict.told && verdict.told->exit_code == kExitUsage && verdict.code == kExitUsage;
}

std::string report(const Verdict& verdict, const std::optional<Whereabouts>& where, const std::string& host,
                   int first_rank) {
  if (told_all(verdict)) return {};
  std::string text = "lockstep: rank " + std::to_string(first_rank + verdict.end.rank) + " failed: ";
  text += verdict.still_running ? "an error, and it did not end by itself" : describe(verdict.end);
  text += " (host " + host;
  if (verdict.end.pid > 0) text += ", pid " + std::to_string(verdict.end.pid);
  if (where && where->step > 0) text += ", step " + std::to_string(where->step);
  if (where) text += ", " + where->phase;
  text += ")\n";
  if (const std::string why = cause(verdict); !why.empty()) text += "lockstep:   cause: " + why + "\n";
  return text;
}

std::string report_of_bad_input(const Verdict& verdict, const std::string& host, int first_rank) {
  return "lockstep: rank " + std::to_string(first_rank + verdict.end.rank) + " on " + host +
         ": wrong use or bad input: " + cause(verdict) + "\n";
}

int count_followers(const Verdict& verdict, const std::vector<End>& ends) {
  return int(std::ranges::count_if(ends, [&](const End& end) { return end.failed() && end.rank != verdict.end.rank; }));
}

std::string report_followers(const Verdict& verdict, const std::vector<End>& ends) {
  return told_all(verdict) ? "" : report_followers(count_followers(verdict, ends));
}

std::string report_followers(std::int64_t count) {
  if (count == 0) return {};
  return "lockstep: " + std::to_string(count) + (count == 1 ? " more rank" : " more ranks") + " ended after it\n";
}

std::string describe_tails(const std::vector<LogTail>& tails) {
  std::string text;
  for (const LogTail& tail : tails) {
    text += "lockstep:   last lines of " + tail.file + ":\n";
    for (const std::string& line : tail.lines) text += "    " + one_line(line) + "\n";
  }
  return text;
}

}  // namespace lockstep::launch
