#pragma once

// What becomes of the hosts of a job that is started from one place: pure.

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/launch/flags/host_list.h"
#include "lockstep/rendezvous/membership.h"

namespace lockstep::launch {

/// A remote shell that fails so soon after its first start was never in. Nor was an agent that is refused then (exit
/// code 2).
inline constexpr std::chrono::milliseconds kNeverIn{5'000};
/// Before an agent is started again: the job may be over, and the others about to end. Doubled with each failure.
inline constexpr std::chrono::milliseconds kStartAgain{1'000};
inline constexpr std::chrono::milliseconds kStartAgainLongest{60'000};

/// An agent that has not ended well.
struct FailedAgent {
  bool hosts = false;  ///< the first host's, at which all meet
  int code = 1;
  int failures = 1;  ///< of this host, with this one
  std::chrono::milliseconds lived{0};
};

/// Whether it is started again while the others go on.
bool starts_again(const FailedAgent& agent, int max_restarts, bool discovers);

/// How long is waited before.
std::chrono::milliseconds wait_to_start_again(int failures);

/// A script may find more hosts than `--nnodes` allows: so many are started beyond that, as spares.
inline constexpr int kMostSpares = 16;
inline std::size_t most_agents(const rendezvous::Limits& limits) {
  return std::size_t(limits.max_nodes) + std::size_t(kMostSpares);
}

/// Of hosts that a script has found: `come` are to be started, `gone` (by index in `now`) ended. One that has another
/// number of slots is gone, and comes when it has ended; not so the first, which keeps what it has.
struct HostChanges {
  std::vector<HostSlots> come;
  std::vector<std::size_t> gone;
  bool first_has_other_slots = false;
};
HostChanges changes_of(const std::vector<HostSlots>& now, const std::vector<HostSlots>& found);

}  // namespace lockstep::launch
