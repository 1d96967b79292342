#include "lockstep/launch/hosts/host_changes.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// What ssh ends with when it has failed itself, and a shell when there is no program to execute.
bool failed_to_start(int code) { return code == 255 || code == 126 || code == 127; }

}  // namespace

bool starts_again(const FailedAgent& agent, int max_restarts, bool discovers) {
  if (agent.hosts) return false;
  if (discovers) return true;  // its hosts come and go
  const bool never_in = (failed_to_start(agent.code) && agent.lived < kNeverIn) || agent.code == kExitUsage;
  return max_restarts > 0 && !(never_in && agent.failures == 1);
}

std::chrono::milliseconds wait_to_start_again(int failures) {
  return std::min(kStartAgain * (1 << std::clamp(failures - 1, 0, 10)), kStartAgainLongest);
}

HostChanges changes_of(const std::vector<HostSlots>& now, const std::vector<HostSlots>& found) {
  HostChanges changes;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (std::ranges::find(found, now[i]) != found.end()) continue;
    const bool there = std::ranges::find(found, now[i].name, &HostSlots::name) != found.end();
    if (i == 0 && there) changes.first_has_other_slots = true;
    if (i != 0 || !there) changes.gone.push_back(i);
  }
  for (const HostSlots& host : found)
    if (std::ranges::find(now, host.name, &HostSlots::name) == now.end()) changes.come.push_back(host);
  return changes;
}

}  // namespace lockstep::launch
