#pragma once

// The agents of `lockstep run --hosts`, as they are started: a command for the remote shell per host. Pure.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/flags/host_list.h"
#include "lockstep/launch/flags/options.h"

namespace lockstep::launch {

/// `--host-discovery-script`: hosts that come and go.
struct DiscoveredHosts {
  std::string script;  ///< a command for the shell
  rendezvous::Limits limits;
  std::string conf;  ///< --rdzv-conf of the agents
  int port = 0;      ///< where the first host's agent listens
};

struct HostsJob {
  std::vector<HostSlots> hosts;
  std::vector<std::string> shell;      ///< the remote shell's words
  std::string folder;                  ///< where the agents run
  std::string program;                 ///< lockstep, the same path on each host
  std::vector<std::string> options;    ///< "run" and the options as typed
  std::vector<std::string> typed;      ///< the user's program and its arguments
  std::vector<std::string> variables;  ///< "NAME=value" that travel
  std::string endpoint;                ///< where the agents meet
  bool port_is_chosen = false;         ///< by the caller, so that another one would do
  std::string run_id;
  std::optional<DiscoveredHosts> discovery;  ///< then there are no hosts at first
};

/// What `arguments` and `options` ask for; `get` and `environment` are this process's. Throws UsageError: no such host
/// list, a variable that is not set, flags that say otherwise. `endpoint`, `folder` and `program` are left to the
/// caller.
HostsJob hosts_job(const std::string& command, const std::vector<std::string>& arguments, const Options& options,
                   const Environment& environment, const ReadFile& read);

/// "h1:29400", "[::1]:29400": on the first host.
std::string endpoint_on(const std::vector<HostSlots>& hosts, int port);

/// The command for the agent of host number `index`.
std::vector<std::string> agent_command(const HostsJob& job, std::size_t index);

}  // namespace lockstep::launch
