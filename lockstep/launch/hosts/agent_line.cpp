#include "lockstep/launch/hosts/agent_line.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/doctor/remote_peer.h"
#include "lockstep/launch/flags/nodes.h"

namespace lockstep::launch {
namespace {

// What the starter alone reads: its own flags go with the others, and are of no meaning there.
constexpr const char* kStays[] = {"PET_HOSTS",  "PET_SECRET_FILE",           "PET_NNODES",      "PET_NODE_RANK",
                                  "PET_EXPORT", "PET_HOST_DISCOVERY_SCRIPT", "PET_RDZV_BACKEND"};

bool travels(const std::string& name, bool discovers) {
  if (discovers && name == "PET_RDZV_CONF") return false;  // it is in the agents' own (discovered_hosts())
  return name.starts_with("PET_") && std::ranges::find(kStays, name) == std::end(kStays);
}

std::string name_of_variable(const std::string& entry) { return entry.substr(0, entry.find('=')); }

// "NAME=value", or NAME with its value here.
std::string exported(const std::string& word, const Environment& environment) {
  const std::string name = name_of_variable(word);
  const bool right = !name.empty() && name.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
                                          "0123456789") == std::string::npos;
  if (!right) throw UsageError("run: -x '" + base::shown(word) + "' is not NAME or NAME=VALUE");
  if (word.size() > name.size()) return word;
  const auto found = std::ranges::find(environment, name, name_of_variable);
  if (found == environment.end()) throw UsageError("run: -x " + name + ": there is no such variable here");
  return *found;
}

void refuse_contradictions(const Options& options) {
  const bool discovers = !options.discovery.empty();
  const auto says = [&](const std::string& flag, const std::string& why) {
    throw UsageError(std::string("run: ") + (discovers ? "--host-discovery-script" : "--hosts") + " and " + flag +
                     ": " + why);
  };
  const rendezvous::Limits& limits = options.nodes.settings.limits;
  if (discovers && !options.hosts.empty()) says("--hosts", "the hosts are those that the script prints");
  if (discovers && options.dry_run) says("--dry-run", "the hosts are known when the script has run");
  if (discovers && (options.nodes.by_scheduler || limits.max_nodes < 2))
    says("--nnodes", "say how many hosts there may be, as --nnodes 1:4");
  if (!discovers && (options.nodes.by_scheduler || limits.max_nodes > 1))
    says("--nnodes", "the number of nodes is that of the hosts");
  if (options.nodes.rank > 0) says("--node-rank", "ranks are in the order of the hosts");
  if (discovers && !options.rdzv_endpoint.empty()) says("--rdzv-endpoint", "they meet on the first host found");
  if (options.rdzv_backend != "static" && !discovers)
    says("--rdzv-backend " + options.rdzv_backend, "the hosts meet by static");
  if (options.standalone) says("--standalone", "it means one machine");
  if (!options.local_addr.empty()) says("--local-addr", "each host has its own: name addresses as hosts");
  if (!options.master_addr.empty()) says("--master-addr", "the first host is where they meet");
}

// They meet by c10d, the first host's agent hosts. Who comes late is let in, so nobody waits long for more.
DiscoveredHosts discovered_hosts(const Options& options) {
  nodes_settings_of_conf(options.nodes);  // or it is an error now, not on each host
  DiscoveredHosts discovery{.script = options.discovery, .limits = options.nodes.settings.limits, .conf = {}};
  discovery.limits.join_timeout = nodes_settings_of_conf(options.nodes).limits.join_timeout;
  discovery.conf = "last_call_timeout=2";
  for (const auto& [key, value] : options.nodes.conf)
    if (key != "is_host") discovery.conf += "," + key + "=" + value;
  return discovery;
}

}  // namespace

HostsJob hosts_job(const std::string& command, const std::vector<std::string>& arguments, const Options& options,
                   const Environment& environment, const ReadFile& read) {
  refuse_contradictions(options);
  const bool discovers = !options.discovery.empty();
  HostsJob job{.hosts = discovers ? std::vector<HostSlots>() : parse_hosts("run: --hosts", options.hosts, read),
               .shell = remote_shell_words(options.remote_shell),
               .options = {command},
               .typed = options.typed,
               .endpoint = options.rdzv_endpoint,
               .run_id = options.rdzv_id};
  if (discovers) job.discovery = discovered_hosts(options);
  // The program and its arguments are the last words, and "--" may be before them.
  auto end = arguments.end() - std::ptrdiff_t(options.typed.size());
  if (end != arguments.begin() && *(end - 1) == "--") --end;
  job.options.insert(job.options.end(), arguments.begin(), end);
  // Flags come from PET_ variables, too.
  for (const std::string& entry : environment)
    if (travels(name_of_variable(entry), discovers)) job.variables.push_back(entry);
  for (const std::string& word : options.exports) job.variables.push_back(exported(word, environment));
  return job;
}

std::string endpoint_on(const std::vector<HostSlots>& hosts, int port) {
  const std::string& name = hosts.front().name;
  return (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + std::to_string(port);
}

std::vector<std::string> agent_command(const HostsJob& job, std::size_t index) {
  std::vector<std::string> words{"env"};
  words.insert(words.end(), job.variables.begin(), job.variables.end());
  words.push_back(job.program);
  words.insert(words.end(), job.options.begin(), job.options.end());
  const std::string nodes = job.discovery ? to_string(job.discovery->limits) : std::to_string(job.hosts.size());
  words.insert(words.end(), {"--by-starter", "--nnodes", nodes, "--rdzv-id", job.run_id});
  if (job.discovery)
    words.insert(words.end(), {"--rdzv-backend", "c10d", "--rdzv-endpoint", job.endpoint, "--rdzv-conf",
                               job.discovery->conf + (index == 0 ? ",is_host=1" : ",is_host=0")});
  else if (job.hosts.size() > 1)
    words.insert(words.end(), {"--rdzv-endpoint", job.endpoint, "--node-rank", std::to_string(index)});
  if (const auto slots = job.hosts[index].slots) words.insert(words.end(), {"-n", std::to_string(*slots)});
  words.push_back("--");
  words.insert(words.end(), job.typed.begin(), job.typed.end());
  return remote_command(job.shell, job.hosts[index].name, words, job.folder);
}

}  // namespace lockstep::launch
