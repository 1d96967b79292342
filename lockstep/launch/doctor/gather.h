#pragma once

// Gathers the facts about this machine. Reads /proc and /sys, asks the resolver, binds a port and lets it go; starts
// nothing. What cannot be read is left out.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/doctor/local_facts.h"
#include "lockstep/launch/machine/machine_report.h"

namespace lockstep::launch {

/// An address with or without a port: "node1", "node1:29400", "10.0.0.1:0", "[::1]:29400", "::1".
struct HostPort {
  std::string host;
  int port = 0;  ///< 0: none is given, any will do
};

/// Pure. Throws UsageError, which begins with `flag`, for a host or a port that is none.
HostPort parse_host_port(const std::string& flag, const std::string& text);

/// `libtorch` is libtorch_section()'s. `endpoint`: "" or what parse_host_port() takes.
LocalFacts gather_local_facts(const Build& build, const Section& libtorch, const std::string& endpoint);

// Its parts.

std::vector<Interface> gather_interfaces();
NameFacts gather_names(const std::string& host);
EndpointFacts gather_endpoint(const std::string& text, const std::vector<Interface>& interfaces);

/// The processes of this user that hold a segment of ours or were started with one.
std::vector<JobProcess> gather_processes();

/// What `lockstep run -r 3` without --log-dir has made in `folder`.
std::vector<std::string> gather_log_folders(const std::string& folder);

}  // namespace lockstep::launch
