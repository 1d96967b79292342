#include "lockstep/launch/agent/policy.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "lockstep/base/error.h"

namespace lockstep::launch {

std::string to_string(Next next) {
  constexpr std::array kNames{"finish", "restart", "new_port", "regroup"};
  return kNames[std::size_t(next)];
}

Decision decide(const AttemptFacts& facts, const History& history, int max_restarts,
                const std::vector<int>& no_restart_codes) {
  if (facts.code == kExitDone || facts.code == kExitStopped || facts.stopped) return {};
  const auto no = [](std::string reason) { return Decision{.why_not = std::move(reason)}; };
  const bool left = history.restarts < max_restarts;
  if (facts.left_behind) return left ? no(kLeftBehind) : Decision{};
  if (facts.port_was_taken && !facts.joined && facts.uptime <= kPortRace && history.ports_lost < kMaxPortsLost)
    return {.next = Next::new_port};
  if (!left) return {};
  if (facts.never_ran) return no("the program cannot be executed");
  if (facts.bad_input) return no("bad input stays bad");
  if (std::ranges::find(no_restart_codes, facts.code) != no_restart_codes.end())
    return no("exit code " + std::to_string(facts.code) + " is among --no-restart-codes");
  return {.next = Next::restart, .delay = back_off(history.failures_in_a_row)};
}

Decision decide_and_count(const AttemptFacts& facts, History& history, int max_restarts,
                          const std::vector<int>& no_restart_codes) {
  history.failures_in_a_row = facts.code != 0 && facts.uptime < kQuickFailure ? history.failures_in_a_row + 1 : 0;
  Decision decision = decide(facts, history, max_restarts, no_restart_codes);
  if (decision.next == Next::restart) ++history.restarts;
  if (decision.next == Next::new_port) ++history.ports_lost;
  decision.restarts = history.restarts;
  return decision;
}

bool is_strangers(const std::vector<ino_t>& listeners, const OurSockets& ours) {
  if (!ours.complete) return false;
  if (listeners.empty()) return ours.inodes.empty();
  return std::ranges::any_of(
      listeners, [&](ino_t listener) { return std::ranges::find(ours.inodes, listener) == ours.inodes.end(); });
}

bool ends_at_once(int first, int signal) {
  return signal == SIGINT || signal == SIGQUIT || (signal == SIGTERM && first == SIGTERM);
}

std::chrono::milliseconds back_off(int failures_in_a_row) {
  constexpr std::chrono::milliseconds kFirst{100};
  constexpr std::chrono::milliseconds kMost{10'000};
  if (failures_in_a_row <= 1) return std::chrono::milliseconds(0);
  return std::min(kMost, kFirst * (1 << std::min(failures_in_a_row - 2, 10)));
}

int port_candidate(std::uint64_t random, int low, int high) {
  constexpr int kFirst = 10'000;
  constexpr int kEnd = 65'536;
  const int below = std::clamp(low - kFirst, 0, kEnd - kFirst);
  const int above = std::clamp(kEnd - (high + 1), 0, kEnd - kFirst);
  if (below + above < 1'000) return kFirst + int(random % std::uint64_t(kEnd - kFirst));
  const int pick = int(random % std::uint64_t(below + above));
  return pick < below ? kFirst + pick : high + 1 + (pick - below);
}

}  // namespace lockstep::launch
