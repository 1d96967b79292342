#pragma once

// Doctors on several hosts, and what they find out together.

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/launch/doctor/between.h"

namespace lockstep::launch {

/// From so many hosts on only the ways to and from the first one are measured: all of them would take minutes.
inline constexpr std::size_t kManyHosts = 9;

struct HostsFound {
  std::vector<HostFacts> hosts;
  std::vector<WayFacts> ways;
};

/// Starts `program` on each of `hosts` by `shell` and has them measure the ways between them. `patience`: for the first
/// word of each. What fails is said in the facts. SIGPIPE must be ignored.
HostsFound examine_hosts(const std::vector<std::string>& hosts, const std::vector<std::string>& shell,
                         const std::vector<std::string>& program, std::chrono::milliseconds patience);

}  // namespace lockstep::launch
