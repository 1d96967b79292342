#include "python/join.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/network/network_group.h"
#include "lockstep/comm/network/roll_call.h"
#include "lockstep/comm/network/store_meeting.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/comm/world.h"
#include "lockstep/rendezvous/environment.h"
#include "lockstep/rendezvous/local_socket.h"
#include "lockstep/rendezvous/segment_exchange.h"

namespace lockstep::python {
namespace {

constexpr char kYes[] = "yes ";
// Of an address that is looked up for its host alone.
constexpr int kSomePort = 1;
// The key of what rank 0 has drawn last; and what follows that in the key of its answer.
constexpr char kCall[] = "call";
constexpr char kAnswer[] = "answer";
// How soon rank 0's call and answer are looked for again, at first and later.
constexpr std::chrono::milliseconds kLookAgain{2};
constexpr std::chrono::milliseconds kLookAgainAtMost{100};

std::string random_number() {
  std::uint64_t number[2] = {};
  if (getrandom(number, sizeof number, 0) != sizeof number) throw_errno("getrandom");
  char text[48];
  std::snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, number[0], number[1]);
  return text;
}

std::string host_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

std::string text_at(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

[[noreturn]] void throw_missing(int rank, const JoinOptions& options) {
  const std::int64_t name = options.global_ranks.empty() ? rank : options.global_ranks[std::size_t(rank)];
  throw Error("lockstep: rank " + std::to_string(name) + " did not come to the process group within " +
              std::to_string(options.timeout.count() / 1000) + " s");
}

// What rank `rank` of the group has put there.
std::string wait_for(c10d::Store& store, const std::string& key, int rank, const JoinOptions& options) {
  try {
    store.wait({key}, options.timeout);
  } catch (const std::exception&) {
    throw_missing(rank, options);
  }
  return text_at(store, key);
}

// What the ranks of a group agree on.
struct Agreement {
  std::string keys{};        // of this time, in the store: what they begin with
  std::string name{};        // drawn for this time: by it the ranks of a node meet, and those of other nodes are known
  std::string host{};        // where rank 0 is reached by other nodes; "-": there are none
  std::vector<int> nodes{};  // by rank, the first rank of its node
};

// What rank 0 has to say to ranks on these nodes.
std::string answer_to(c10d::Store& store, const std::vector<std::string>& nodes) {
  if (const std::string why = refusal(nodes); !why.empty()) return why;
  const std::vector<comm::Seat> seats = comm::seats_of(nodes);
  const bool one_node = seats[0].local_world == int(seats.size());
  try {
    std::string answer = kYes + ("c10d:" + random_number()) + " " + (one_node ? "-" : comm::own_address_beside(store));
    for (const comm::Seat& seat : seats) answer += " " + std::to_string(seat.first);
    return answer;
  } catch (const Error& error) {
    return "lockstep: " + std::string(error.what());
  }
}

// It rises: what is no such list would make ranks of no node.
Agreement agreement_in(const std::string& answer, int size) {
  std::istringstream words(answer.substr(sizeof kYes - 1));
  Agreement agreed;
  words >> agreed.name >> agreed.host;
  for (int first = 0; words >> first;) agreed.nodes.push_back(first);
  if (int(agreed.nodes.size()) != size || !std::ranges::is_sorted(agreed.nodes))
    throw Error("lockstep: rank 0 has answered '" + base::shown(answer) +
                "'; have all ranks the same version of lockstep_torch?");
  return agreed;
}

// What rank 0 has told all, and what the keys of this time begin with.
struct Told {
  std::string keys, answer;
};

// Rank 0's side: it looks at all names, decides, and says so to all.
Told tell_all(c10d::Store& store, const JoinOptions& options) {
  const std::string keys = random_number() + "/";
  put(store, kCall, keys);
  std::vector<std::string> nodes{own_node().to_string()}, numbers;
  for (int rank = 1; rank < options.size; ++rank) {
    const std::string said = wait_for(store, keys + std::to_string(rank), rank, options);
    const std::size_t space = said.find(' ');
    numbers.push_back(said.substr(0, space));
    nodes.push_back(space == std::string::npos ? "" : said.substr(space + 1));
  }
  const std::string answer = answer_to(store, nodes);
  put(store, keys + kAnswer, answer);
  for (const std::string& number : numbers) put(store, number, keys);
  return {keys, answer};
}

// That of the others. Where a dead rank 0 has called nobody reads what is said; this rank's number tells who has.
Told ask_rank_zero(c10d::Store& store, const JoinOptions& options) {
  comm::StoreMeeting meeting(store, "");
  const std::string number = random_number();
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  std::string called;
  for (std::chrono::milliseconds rest = kLookAgain;; rest = std::min(2 * rest, kLookAgainAtMost)) {
    if (const std::optional<std::string> keys = meeting.look_up(kCall); keys && *keys != called) {
      called = *keys;
      meeting.publish(called + std::to_string(options.rank), number + " " + own_node().to_string());
      rest = kLookAgain;
    }
    if (const std::optional<std::string> keys = meeting.look_up(number))
      return {*keys, wait_for(store, *keys + kAnswer, 0, options)};
    if (std::chrono::steady_clock::now() >= deadline) throw_missing(0, options);
    std::this_thread::sleep_for(rest);
  }
}

// A store may outlive a group and see another one of the same name: torchrun's does when it starts ranks again, of
// which some had come before and others had not. So no rank counts; rank 0 draws what the keys of each time begin with.
Agreement agree(c10d::Store& store, const JoinOptions& options) {
  const Told told = options.rank == 0 ? tell_all(store, options) : ask_rank_zero(store, options);
  if (!told.answer.starts_with(kYes)) throw UsageError(told.answer);
  Agreement agreed = agreement_in(told.answer, options.size);
  agreed.keys = told.keys;
  return agreed;
}

// The job's own group, of which later ones are parts.
std::mutex job_mutex;
std::weak_ptr<comm::Group> job_group;

// Of a part's ranks those that are on this node, where `place` is.
base::Whole whole_of(const JoinOptions& options, const comm::Topology& place) {
  const std::lock_guard lock(job_mutex);
  const std::shared_ptr<comm::Group> job = job_group.lock();
  if (options.global_ranks.empty() || job == nullptr || job->shared_node() == nullptr) return {};
  const int first = job->rank() - job->topology().local_rank, ranks = job->topology().local_world;
  std::vector<int> seats;
  for (const std::int64_t rank : options.global_ranks)
    if (first <= rank && rank < first + ranks) seats.push_back(int(rank) - first);
  if (int(seats.size()) != place.local_world) return {};  // the job has found other nodes
  return job->node().whole_of(seats);
}

std::shared_ptr<comm::NodeGroup> join_node(const Agreement& agreed, const comm::Topology& place,
                                           const JoinOptions& options) {
  base::Whole whole = whole_of(options, place);
  if (place.local_world == 1) return std::make_shared<comm::SingleGroup>(std::move(whole));
  const int first = place.rank - place.local_rank;  // it names the node
  const rendezvous::Place seat{.rank = place.rank,
                               .world_size = place.world,
                               .local_rank = place.local_rank,
                               .local_world_size = place.local_world,
                               .launcher = "torch.distributed",
                               .job_key = agreed.name + " node " + std::to_string(first)};
  return std::make_shared<comm::ShmGroup>(rendezvous::share_segment(seat, options.timeout), place.local_rank,
                                          options.timeout, std::move(whole));
}

std::shared_ptr<comm::Group> join_nodes(c10d::Store& store, const Agreement& agreed, const comm::Topology& place,
                                        const std::shared_ptr<comm::NodeGroup>& node, const JoinOptions& options) {
  comm::MeshPlace mesh{.rank = place.rank,
                       .world = place.world,
                       .local_rank = place.local_rank,
                       .local_world = place.local_world,
                       .host = agreed.host,
                       .port = kSomePort,
                       .interface = comm::interface_asked_for(),
                       .key = agreed.name,
                       .meeting = std::make_shared<comm::StoreMeeting>(store, agreed.keys),
                       .timeout = options.timeout,
                       .check_calls = node->node().member.compares_calls(),
                       .check = [node] { node->node().member.check_abort_anywhere(); }};
  if (node->node().member.whole().page != nullptr)
    mesh.names.assign(options.global_ranks.begin(), options.global_ranks.end());
  return comm::join_network(mesh, node, comm::tcp_streams, comm::hierarchical_group);
}

std::uint64_t inode(const char* path) {
  struct stat status = {};
  if (stat(path, &status) != 0) throw_errno(path);
  return status.st_ino;
}

}  // namespace

std::string NodeName::to_string() const { return host + " " + kernel + " " + namespaces; }

NodeName own_node() {
  NodeName node{.host = host_name()};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> node.kernel;
  node.namespaces = std::to_string(rendezvous::own_pid_namespace()) + "." + std::to_string(inode("/proc/self/ns/net"));
  return node;
}

std::string refusal(const std::vector<std::string>& nodes) {
  const std::vector<comm::Seat> seats = comm::seats_of(nodes);
  const auto host = [&](std::size_t rank) { return nodes[rank].substr(0, nodes[rank].find(' ')); };
  for (std::size_t rank = 1; rank < nodes.size(); ++rank) {
    if (seats[rank - 1].first <= seats[rank].first) continue;
    return "lockstep: ranks " + std::to_string(seats[rank].first) + " and " + std::to_string(rank) + " are on " +
           host(rank) + ", rank " + std::to_string(rank - 1) + " between them on " + host(rank - 1) +
           (host(rank - 1) == host(rank) ? " in another namespace" : "") +
           "; the ranks of a node need to follow one another in a lockstep process group: use gloo here";
  }
  return "";
}

std::shared_ptr<comm::Group> join(c10d::Store& store, const JoinOptions& options) {
  if (options.size == 1) return std::make_shared<comm::SingleGroup>();
  const bool check_calls = comm::checks_calls(true, ::getenv);  // before anybody waits for this rank
  const Agreement agreed = agree(store, options);
  const comm::Topology place = comm::topology_of(agreed.nodes, options.rank);
  const std::shared_ptr<comm::NodeGroup> node = join_node(agreed, place, options);
  node->node().member.set_compares_calls(check_calls);
  std::shared_ptr<comm::Group> group = node;
  if (place.nodes > 1) group = join_nodes(store, agreed, place, node, options);
  if (options.global_ranks.empty()) {
    const std::lock_guard lock(job_mutex);
    job_group = group;
  }
  return group;
}

}  // namespace lockstep::python
