#pragma once

// `lockstep run --hosts`: starts the agents of a job on other hosts by a remote shell, brings their output home, and
// ends them (docs/design/rendezvous.md).

#include "lockstep/launch/hosts/agent_line.h"

namespace lockstep::launch {

/// Runs the job and returns its exit code: that of the first agent that fails and is not started again, 1 where it is
/// the remote shell that does (255). With restarts a lost agent is started again, unless it is the first host's; with
/// discovery the hosts are those that the script finds. A port that was chosen here and is taken on the first host
/// makes all of them start once more, with another. `key`: the line that each agent is given first; an empty line:
/// none. Takes the process over as run_agent() does. Throws UsageError: no hosts are found in time; Error: a remote
/// shell cannot be started.
int run_on_hosts(const HostsJob& job, const Plan& plan, const std::string& key);

}  // namespace lockstep::launch
