#include "lockstep/launch/flags/nodes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/launch/flags/flags.h"

namespace lockstep::launch {
namespace {

constexpr int kMostNodes = 10'000;
constexpr int kStaticPort = 29'500;  // torchrun's
constexpr int kC10dPort = 29'400;

std::chrono::milliseconds conf_seconds(const std::string& name, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 86'400))
    throw UsageError(name + "=" + text + " is not a number of seconds above 0, up to 86400");
  return std::chrono::milliseconds(std::max(1L, std::lround(value * 1000)));
}

bool conf_truth(const std::string& name, const std::string& text) {
  for (const char* yes : {"1", "true", "True", "t", "yes", "y"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "False", "f", "no", "n"})
    if (text == no) return false;
  throw UsageError(name + "=" + text + " is not true or false");
}

void read_setting(NodesSettings& settings, const std::string& flag, const std::string& key, const std::string& value) {
  const std::string name = flag + " " + key;
  constexpr std::array kOfOtherStores{"close_timeout", "heartbeat_timeout", "read_timeout", "rank", "store_type"};
  if (key == "join_timeout" || key == "timeout")
    settings.limits.join_timeout = conf_seconds(name, value);
  else if (key == "last_call_timeout")
    settings.limits.last_call_timeout = conf_seconds(name, value);
  else if (key == "keep_alive_interval")
    settings.keep_alive = conf_seconds(name, value);
  else if (key == "keep_alive_max_attempt")
    settings.misses = number(name, value, 1, 1000);
  else if (key == "is_host")
    settings.is_host = conf_truth(name, value);
  else if (std::ranges::find(kOfOtherStores, key) == kOfOtherStores.end())
    throw UsageError(name +
                     ": no such setting: join_timeout, last_call_timeout, keep_alive_interval, "
                     "keep_alive_max_attempt, is_host");
}

}  // namespace

void read_nnodes(NodeOptions& options, const std::string& name, const std::string& value) {
  options.by_scheduler = value == "auto";
  if (options.by_scheduler) return;
  const std::size_t colon = value.find(':');
  const int least = number(name, value.substr(0, colon), 1, kMostNodes);
  const int most = colon == std::string::npos ? least : number(name, value.substr(colon + 1), 1, kMostNodes);
  if (least > most) throw UsageError(name + " '" + value + "' is not a range MIN:MAX");
  options.settings.limits.min_nodes = least;
  options.settings.limits.max_nodes = most;
}

void read_rdzv_conf(NodeOptions& options, const std::string& name, const std::string& value) {
  std::istringstream pairs(value);
  options.conf.clear();
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UsageError(name + " '" + value + "' is not a list of key=value");
    options.conf.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  options.conf_name = name;
}

std::pair<std::string, int> endpoint_of(const std::string& text, int port) {
  const std::size_t colon = text.rfind(':');
  const bool bare_six = colon != std::string::npos && (text.find(':') != colon && text.find(']') == std::string::npos);
  const auto bare = [](std::string host) {  // an IPv6 address has brackets in an endpoint only
    return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
  };
  if (colon == std::string::npos || bare_six || text.back() == ']') return {bare(text), port};
  return {bare(text.substr(0, colon)), number("run: --rdzv-endpoint", text.substr(colon + 1), 0, 65'535)};
}

bool asks_for_rank(const Options& options) {
  const rendezvous::Limits& limits = options.nodes.settings.limits;
  return !options.nodes.by_scheduler && options.nodes.rank < 0 && options.rdzv_backend == "static" &&
         !options.by_starter && limits.min_nodes == limits.max_nodes && limits.max_nodes > 1;
}

void settle_nodes(Options& options, const rendezvous::AutoNodes& told) {
  options.nodes.settings.limits.min_nodes = options.nodes.settings.limits.max_nodes = told.nodes;
  if (told.nodes == 1) return;
  if (options.rdzv_backend == "static" && options.nodes.rank < 0) options.nodes.rank = told.node_rank;
  if (!options.rdzv_endpoint.empty() || !options.master_addr.empty()) return;
  if (told.host.empty())
    throw UsageError("run: --nnodes " + (options.nodes.by_scheduler ? "auto" : std::to_string(told.nodes)) +
                     ": the scheduler does not say where the nodes can meet (" + told.because +
                     "); give --rdzv-endpoint HOST[:PORT]");
  options.rdzv_endpoint = told.host;
}

NodesSettings nodes_settings_of_conf(const NodeOptions& options) {
  NodesSettings settings = options.settings;
  for (const auto& [key, value] : options.conf) read_setting(settings, options.conf_name, key, value);
  return settings;
}

NodesSettings nodes_settings(const Options& options) {
  NodesSettings settings = nodes_settings_of_conf(options.nodes);
  const std::string nnodes = "run: --nnodes " + to_string(settings.limits);
  if (options.standalone) throw UsageError(nnodes + ": --standalone means one node");
  settings.backend = options.rdzv_backend;
  settings.local_addr = options.local_addr;
  const bool fixed = settings.backend == "static";
  const std::string given = !options.rdzv_endpoint.empty() ? options.rdzv_endpoint
                            : !fixed                       ? std::string("localhost")
                            : options.master_addr.empty()  ? std::string("127.0.0.1")
                                                           : options.master_addr;
  const int port = !fixed ? kC10dPort : options.master_port != 0 ? options.master_port : kStaticPort;
  std::tie(settings.host, settings.port) = endpoint_of(given, port);
  if (settings.host.empty() || settings.port == 0)
    throw UsageError("run: --rdzv-endpoint '" + given + "' is not HOST or HOST:PORT with a port from 1 to 65535");
  settings.limits.fixed_ranks = fixed;
  settings.node_rank = fixed ? std::max(0, options.nodes.rank) : -1;
  if (options.nodes.rank >= settings.limits.max_nodes)
    throw UsageError("run: --node-rank " + std::to_string(options.nodes.rank) + " is not one of " + nnodes.substr(5) +
                     ": 0 to " + std::to_string(settings.limits.max_nodes - 1));
  if (fixed && settings.is_host.value_or(settings.node_rank == 0) != (settings.node_rank == 0))
    throw UsageError(options.nodes.conf_name + " is_host=" + (*settings.is_host ? "1" : "0") + " with --node-rank " +
                     std::to_string(settings.node_rank) + ": node rank 0 hosts, unless --rdzv-backend c10d");
  if (fixed && settings.limits.min_nodes < settings.limits.max_nodes)
    throw UsageError(nnodes + ": a range needs --rdzv-backend c10d; static means that every node names its rank");
  return settings;
}

}  // namespace lockstep::launch
