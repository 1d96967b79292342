#pragma once

// What the doctors of several machines have found out together, and what it means. All pure.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/launch/doctor/finding.h"
#include "lockstep/launch/doctor/local_facts.h"

namespace lockstep::launch {

/// Further apart than this, times of different machines cannot be compared.
inline constexpr std::chrono::milliseconds kClocksApart{1'000};
inline constexpr std::chrono::milliseconds kClocksDiffer{50};
/// A slower round trip or a slower way than these holds up the exchange of gradients.
inline constexpr std::chrono::microseconds kSlowRoundTrip{1'000};
inline constexpr double kSlowBytes = 100e6;  // per second; 1 Gbit/s has 125e6

/// One host by its doctor.
struct HostFacts {
  std::string name;      ///< as given
  std::string error;     ///< why its doctor did not answer; empty: it did
  bool by_shell = true;  ///< it was started by a remote shell
  VersionFacts versions;
  std::vector<Finding> findings;            ///< its own
  std::chrono::nanoseconds offset{0};       ///< of its clock from this machine's
  std::chrono::nanoseconds uncertainty{0};  ///< half of the quickest round trip
};

/// One direction between two hosts.
struct WayFacts {
  std::string from;
  std::string to;
  std::string error;    ///< why nothing was measured; empty: it was
  std::string address;  ///< of `to`, as `from` resolves it
  std::chrono::nanoseconds round_trip{0};
  double bytes_per_second = 0;
};

/// Versions against those of the first host that answered, and the clock.
std::vector<Finding> check_host(const HostFacts& host, const HostFacts& first);

std::vector<Finding> check_way(const WayFacts& way);

/// A title for each host, with its own findings behind what concerns all, one for each way, and what no key protects on
/// them.
std::vector<Examined> check_hosts(const std::vector<HostFacts>& hosts, const std::vector<WayFacts>& ways);

}  // namespace lockstep::launch
