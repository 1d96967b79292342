#include "lockstep/launch/verdict.h"

#include <string.h>

#include <algorithm>
#include <csignal>

namespace lockstep::launch {
namespace {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

// A process that was killed could not say why: then the slot holds a peer's guess.
bool adds_something(const Verdict& verdict) {
  return verdict.told && (verdict.end.signal == 0 || verdict.end.signal == SIGABRT);
}

// Wrong use or bad input, which the worker itself prints; more lines would only bury it.
bool told_all(const Verdict& verdict) {
  return verdict.told && verdict.told->exit_code == kExitUsage && verdict.code == kExitUsage && !verdict.still_running;
}

}  // namespace

std::string describe(const End& end) {
  return end.signal != 0 ? "killed by " + signal_name(end.signal) : "exit code " + std::to_string(end.exit_code);
}

int exit_code(const End& end) { return end.signal != 0 ? 128 + end.signal : end.exit_code; }

std::optional<Whereabouts> whereabouts(const base::ControlPage& page, int rank) {
  if (rank < 0 || rank >= page.local_world) return std::nullopt;
  const base::RankWords& words = page.ranks[rank];
  if (words.generation.load(std::memory_order_acquire) != page.generation.load(std::memory_order_relaxed))
    return std::nullopt;
  return Whereabouts{.step = words.step.load(std::memory_order_relaxed),
                     .phase = std::string(to_string(base::Phase(words.phase.load(std::memory_order_relaxed))))};
}

Failure failure_of(const End& end, const std::optional<Whereabouts>& where) {
  Failure failure{.rank = end.rank, .cause = describe(end), .exit_code = exit_code(end)};
  if (where) {
    failure.step = where->step;
    failure.phase = where->phase;
  }
  return failure;
}

Verdict first_failure(const std::vector<End>& ends, const std::optional<Failure>& told) {
  Verdict verdict{.told = told};
  const auto find = [&](auto&& matches) { return std::find_if(ends.begin(), ends.end(), matches); };
  const auto first = find([](const End& end) { return end.failed(); });
  verdict.end = *first;
  if (told && told->rank >= 0) {
    const auto named = find([&](const End& end) { return end.rank == told->rank; });
    verdict.still_running = named == ends.end();
    if (verdict.still_running) verdict.end = {.rank = told->rank, .exit_code = told->exit_code};
    // One that ended well is not to blame, whatever a peer thought of its leaving.
    else if (named->failed())
      verdict.end = *named;
  }
  // A failure told with exit code 0 is a failure all the same.
  verdict.code = exit_code(verdict.end) != 0 ? exit_code(verdict.end) : int(kExitFailure);
  return verdict;
}

std::string report(const Verdict& verdict, const std::optional<Whereabouts>& where, const std::string& host) {
  if (told_all(verdict)) return {};
  std::string text = "lockstep: rank " + std::to_string(verdict.end.rank) + " failed: ";
  text += verdict.still_running ? "an error, and it did not end by itself" : describe(verdict.end);
  text += " (host " + host;
  if (verdict.end.pid > 0) text += ", pid " + std::to_string(verdict.end.pid);
  if (where && where->step > 0) text += ", step " + std::to_string(where->step);
  if (where) text += ", " + where->phase;
  text += ")\n";
  if (adds_something(verdict)) text += "lockstep:   cause: " + verdict.told->to_string() + "\n";
  return text;
}

std::string report_followers(const Verdict& verdict, const std::vector<End>& ends) {
  const auto count = std::count_if(ends.begin(), ends.end(),
                                   [&](const End& end) { return end.failed() && end.rank != verdict.end.rank; });
  if (count == 0 || told_all(verdict)) return {};
  return "lockstep: " + std::to_string(count) + (count == 1 ? " more rank" : " more ranks") + " ended after it\n";
}

}  // namespace lockstep::launch
