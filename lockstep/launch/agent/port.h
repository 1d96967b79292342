#pragma once

// MASTER_PORT: a free one, and who has taken it.

#include <sys/types.h>

#include <string_view>
#include <vector>

#include "lockstep/launch/agent/policy.h"

namespace lockstep::launch {

/// A TCP port that nobody on this machine uses at this moment, on any address. It is not held:
/// whoever binds it must be ready to lose a race. Throws UsageError when none of the 200 that are tried is free.
int free_port();

/// Whether somebody listens at the port on this machine, or holds it so that nobody can.
bool port_is_taken(int port);

/// Whether the port is taken, and by no process that descends from this one. Orphans of a worker are this process's
/// children, as it is a subreaper: who descends from a worker is found, in whatever session it is.
bool stranger_has_port(int port);

/// The inodes of the sockets that listen at `port`, by the text of /proc/net/tcp or tcp6. Pure.
std::vector<ino_t> listening_inodes(std::string_view table, int port);

}  // namespace lockstep::launch
