#pragma once

// The doctor on another host: `lockstep doctor --peer`, which answers lines of standard input on standard output, and
// ends with its input. The doctor of a node speaks the same (node_doctors.h).
//
//   it says first           lockstep-doctor-peer 1 {"version": ..., "findings": [...]}
//   time                    time NANOSECONDS
//   listen HOST TOKEN       listening PORT, then done; `stop` ends it early
//   measure HOST PORT TOKEN measured NANOSECONDS BYTES_PER_SECOND ADDRESS
//   anything that fails     error WHY

#include <string>

#include "lockstep/launch/doctor/between.h"

namespace lockstep::launch {

/// What the peer says first, without its first two words.
std::string describe_peer(const VersionFacts& versions, const std::vector<Finding>& findings);

/// Reads it into `host`. Throws Error for anything else.
void read_description(const std::string& text, HostFacts& host);

/// Says `description`, which is describe_peer()'s, and answers until its input ends, or is silent for ten minutes.
void serve_as_peer(const std::string& description, int in, int out);

}  // namespace lockstep::launch
