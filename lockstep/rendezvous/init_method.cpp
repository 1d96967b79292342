#include "lockstep/rendezvous/init_method.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/variable_reader.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kMostRanks = 4096;  // as many as a network has (tcp_mesh.h)

std::string in_quotes(const std::string& text) { return "'" + base::shown(text) + "'"; }

UsageError wrong_method(const InitMethod& method, const std::string& why) {
  return UsageError("init: init_method " + in_quotes(method.url) + ": " + why);
}

void check_rank(const InitMethod& method) {
  if (method.world_size == 0 || method.world_size < -1)
    throw UsageError("init: world_size " + std::to_string(method.world_size) + " is not a number from 1");
  if (method.world_size > kMostRanks)
    throw UsageError("init: world_size " + std::to_string(method.world_size) + "; at most " +
                     std::to_string(kMostRanks) + " are possible");
  if (method.rank < -1 || (method.world_size != -1 && method.rank >= method.world_size))
    throw UsageError("init: rank " + std::to_string(method.rank) +
                     (method.world_size == -1 ? " is not a number from 0"
                                              : " is none of the ranks 0 to " + std::to_string(method.world_size - 1) +
                                                    " of world_size " + std::to_string(method.world_size)));
}

void require_rank(const InitMethod& method) {
  std::vector<std::string> missing;
  if (method.rank == -1) missing.emplace_back("rank");
  if (method.world_size == -1) missing.emplace_back("world_size");
  if (!missing.empty())
    throw wrong_method(method, "needs rank and world_size beside it; not given: " + base::join(missing, " and "));
}

// Ranks that are told nothing of nodes.
Place by_hand(const InitMethod& method, const GetEnv& get) {
  require_rank(method);
  Place place;
  if (method.world_size == 1) return place;
  place.rank = method.rank;
  place.world_size = method.world_size;
  place.launcher = "hand";
  place.socket_interface = socket_interface(get);
  place.nodes_known = false;
  return place;
}

// "host:port" of "tcp://host:port"; an IPv6 address stands in brackets.
void read_endpoint(const InitMethod& method, const std::string& text, Place& place) {
  const std::size_t end = text.starts_with('[') ? text.find(']') : text.find(':');
  if (text.starts_with('[') && end == std::string::npos)
    throw wrong_method(method, "the bracket of its host has no end");
  const std::size_t colon = text.starts_with('[') ? end + 1 : end;
  if (colon >= text.size() || text[colon] != ':') throw wrong_method(method, "names no port; expected tcp://host:port");
  place.master_addr = text.substr(0, colon);
  if (place.master_addr.empty() || place.master_addr == "[]")
    throw wrong_method(method, "names no host; expected tcp://host:port, an IPv6 one in brackets");
  const std::string port = text.substr(colon + 1);
  if (port.find(':') != std::string::npos)
    throw wrong_method(method, "an IPv6 address stands in brackets, as tcp://[::1]:29500");
  if (port.empty()) throw wrong_method(method, "names no port; expected tcp://host:port");
  const auto [at, error] = std::from_chars(port.data(), port.data() + port.size(), place.master_port);
  if (error != std::errc() || at != port.data() + port.size() || place.master_port < 1 || place.master_port > 65535)
    throw wrong_method(method, "port " + in_quotes(port) + " is not a number from 1 to 65535");
}

Place by_tcp(const InitMethod& method, const std::string& endpoint, const GetEnv& get) {
  Place place = by_hand(method, get);
  read_endpoint(method, endpoint, place);
  return place;
}

Place by_file(const InitMethod& method, const std::string& path, const GetEnv& get) {
  if (!path.starts_with('/'))
    throw wrong_method(method, "its path must begin at the root, as file:///path, with three slashes");
  if (path.ends_with('/')) throw wrong_method(method, "names a folder, not a file");
  Place place = by_hand(method, get);
  place.meeting_file = path;
  return place;
}

Place by_environment(const InitMethod& method, const GetEnv& get) {
  const bool over_network = is_over_network(method.backend);
  const VariableReader read(get, "a start by hand");
  if (method.rank == -1 && method.world_size == -1) return place_from_environment(get, over_network);
  const std::string rank = method.rank == -1 ? "" : std::to_string(method.rank);
  const std::string world_size = method.world_size == -1 ? "" : std::to_string(method.world_size);
  const GetEnv overlaid = [&](const char* name) {
    if (name == std::string_view("RANK") && !rank.empty()) return rank.c_str();
    if (name == std::string_view("WORLD_SIZE") && !world_size.empty()) return world_size.c_str();
    return get(name);
  };
  if (rank.empty() && !read.has("RANK"))
    throw wrong_method(method, "world_size is given, but no rank, and RANK is not set");
  if (world_size.empty() && !read.has("WORLD_SIZE"))
    throw wrong_method(method, "rank is given, but no world_size, and WORLD_SIZE is not set");
  if (read.has("LOCAL_RANK") || read.has("LOCAL_WORLD_SIZE")) return place_from_environment(overlaid, over_network);
  InitMethod whole = method;
  const VariableReader both(overlaid, "a start by hand");
  whole.world_size = both.number("WORLD_SIZE", 1, kMostRanks);
  whole.rank = both.number("RANK", 0, whole.world_size - 1);
  Place place = by_hand(whole, get);
  if (place.world_size == 1) return place;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (!read.has(name))
      throw wrong_method(method,
                         std::string(name) + " is not set, where rank 0 meets ranks that no launcher has started");
  place.master_addr = read.required_text("MASTER_ADDR");
  place.master_port = read.number("MASTER_PORT", 1, 65535);
  return place;
}

const std::vector<std::string> kSchemes = {"env", "tcp", "file"};

Place read_method(const InitMethod& method, const GetEnv& get) {
  check_rank(method);
  const std::size_t colon = method.url.find("://");
  const std::string scheme = method.url.substr(0, std::min(colon, method.url.find(':')));
  if (std::ranges::find(kSchemes, scheme) == kSchemes.end()) {
    const std::string near = base::nearest(scheme, kSchemes);
    throw UsageError("init: unknown init_method " + in_quotes(method.url) +
                     (near.empty() ? "" : ": did you mean " + near + "://?") +
                     " (one of env://, tcp://host:port, file:///path)");
  }
  if (colon == std::string::npos) throw wrong_method(method, "'://' belongs behind " + in_quotes(scheme));
  const std::string rest = method.url.substr(colon + 3);
  if (rest.find('?') != std::string::npos)
    throw wrong_method(method, "takes nothing behind '?': give rank and world_size beside it");
  if (scheme == "tcp") return by_tcp(method, rest, get);
  if (scheme == "file") return by_file(method, rest, get);
  if (!rest.empty()) throw wrong_method(method, "nothing belongs behind env://");
  return by_environment(method, get);
}

// MPI knows the ranks that its own launcher has started, and does not survive one of them.
void check_mpi_start(const Place& place) {
  if (place.launcher == "mpirun" || place.launcher == "srun") return;
  const std::string who = place.launcher == "lockstep"   ? "lockstep run"
                          : place.launcher == "torchrun" ? "torchrun"
                                                         : "";
  throw UsageError(
      "init: backend 'mpi' is for ranks that mpirun or srun has started, without RANK; this one was started " +
      (who.empty() ? (place.launcher == "hand" ? std::string("by hand") : std::string("alone"))
                   : "by " + who + ", which restarts ranks, and MPI does not survive the loss of one") +
      ": start the program by mpirun, or take 'auto'");
}

// Where a launcher has told the nodes; else the ranks find out (roll_call.h). Ranks of a node follow one another.
void check_backend(const Place& place, Backend backend) {
  if (backend == Backend::mpi) check_mpi_start(place);
  const bool of_one_node = backend == Backend::shm || backend == Backend::ipc;
  if (!of_one_node || !place.nodes_known || place.local_world_size == place.world_size) return;
  const int first = place.rank - place.local_rank;
  throw UsageError("init: backend '" + std::string(to_string(backend)) + "' is for ranks of one node, and ranks " +
                   std::to_string(place.rank) + " and " + std::to_string(first > 0 ? 0 : place.local_world_size) +
                   " are on different ones");
}

}  // namespace

Backend parse_backend(const std::string& name) {
  if (name == "auto" || name == "hierarchical") return Backend::automatic;
  if (name == "shm") return Backend::shm;
  if (name == "tcp") return Backend::tcp;
  if (name == "mpi") return Backend::mpi;
  if (name == "gloo") return Backend::gloo;
  if (name == "nccl") return Backend::nccl;
  if (name == "ipc") return Backend::ipc;
  throw UsageError("init: " + base::unknown_name("backend", base::shown(name),
                                                 {"auto", "hierarchical", "shm", "tcp", "mpi", "gloo", "nccl", "ipc"}));
}

const char* to_string(Backend backend) {
  constexpr const char* names[] = {"auto", "shm", "tcp", "mpi", "gloo", "nccl", "ipc"};
  return names[int(backend)];
}

bool is_over_network(Backend backend) {
  return backend == Backend::tcp || backend == Backend::mpi || backend == Backend::gloo;
}

Place place_by(const InitMethod& method, const GetEnv& get) {
  Place place = read_method(method, get);
  check_backend(place, method.backend);
  return place;
}

Place place_by(const InitMethod& method) {
  Place place = place_by(method, [](const char* name) { return ::getenv(name); });
  name_job(place);
  return place;
}

}  // namespace lockstep::rendezvous
