#include "lockstep/launch/doctor/between.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::launch {
namespace {

using Level = Finding::Level;

std::string milliseconds_text(std::chrono::nanoseconds time) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f ms", double(time.count()) / 1e6);
  return text;
}

// Nothing where both are alike.
void compare(std::vector<Finding>& findings, const std::string& what, const std::string& here, const std::string& there,
             const std::string& first, const std::string& advice) {
  if (here != there)
    findings.push_back({Level::wrong, what,
                        (here.empty() ? "unknown" : here) + ", " + (there.empty() ? "unknown" : there) + " on " + first,
                        advice});
}

Finding check_offset(const HostFacts& host) {
  const auto apart = std::max(host.offset, -host.offset) - host.uncertainty;
  const std::string value =
      milliseconds_text(host.offset) + " from this machine's, within " + milliseconds_text(host.uncertainty);
  if (apart > kClocksApart)
    return {Level::wrong, "clock offset", value,
            "run chronyd or systemd-timesyncd: reports and logs order events by time"};
  if (apart > kClocksDiffer)
    return {Level::note, "clock offset", value, "logs of this host and others are out of step by as much"};
  return {Level::good, "clock offset", value, ""};
}

}  // namespace

std::vector<Finding> check_host(const HostFacts& host, const HostFacts& first) {
  if (!host.error.empty())
    return {host.by_shell ? Finding{Level::wrong, "remote shell", host.error,
                                    "the command must run there without a password, and lockstep be at the same path"}
                          : Finding{Level::wrong, "its doctor", host.error, "run lockstep doctor on that node alone"}};
  std::vector<Finding> findings;
  const VersionFacts& mine = host.versions;
  const VersionFacts& theirs = first.versions;
  compare(findings, "version", mine.lockstep, theirs.lockstep, first.name, "install the same lockstep on all nodes");
  compare(findings, "commit", mine.commit, theirs.commit, first.name, "install the same build on all nodes");
  compare(findings, "libtorch version", mine.libtorch, theirs.libtorch, first.name,
          "install the same libtorch on all nodes");
  if (mine.processor != theirs.processor)
    findings.push_back({Level::note, "processor type", mine.processor + "; " + theirs.processor + " on " + first.name,
                        "the slowest node sets the pace, and results have other bits than on nodes of one type"});
  if (findings.empty() && host.name != first.name)
    findings.push_back({Level::good, "same as", first.name + ": version, commit, libtorch, processor type", ""});
  findings.push_back(check_offset(host));
  return findings;
}

std::vector<Finding> check_way(const WayFacts& way) {
  if (!way.error.empty())
    return {{Level::wrong, "connection", way.error,
             "look at the name (does it resolve to loopback there?), the firewall and the route"}};
  const std::string place = way.address + ", ";
  char speed[48];
  std::snprintf(speed, sizeof speed, "%.0f MB/s", way.bytes_per_second / 1e6);
  const bool far = way.round_trip > kSlowRoundTrip;
  const bool slow = way.bytes_per_second < kSlowBytes;
  return {{far ? Level::note : Level::good, "round trip", place + milliseconds_text(way.round_trip),
           far ? "each exchange waits for it: choose nodes of one rack, or another interface" : ""},
          {slow ? Level::note : Level::good, "bandwidth", place + speed,
           slow ? "gradients cross here in each step: choose a faster interface" : ""}};
}

std::vector<Examined> check_hosts(const std::vector<HostFacts>& hosts, const std::vector<WayFacts>& ways) {
  std::vector<Examined> all;
  const auto first = std::ranges::find_if(hosts, [](const HostFacts& host) { return host.error.empty(); });
  for (const HostFacts& host : hosts) {
    Examined one{host.name, check_host(host, first == hosts.end() ? host : *first)};
    one.findings.insert(one.findings.end(), host.findings.begin(), host.findings.end());
    all.push_back(std::move(one));
  }
  for (const WayFacts& way : ways) all.push_back({way.from + " -> " + way.to, check_way(way)});
  if (!ways.empty()) all.push_back({"between hosts", {unprotected()}});
  return all;
}

}  // namespace lockstep::launch
