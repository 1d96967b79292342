#include "lockstep/comm/network/tcp_mesh.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/network/door.h"
#include "lockstep/comm/network/meeting.h"
#include "lockstep/comm/network/words.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

using base::UniqueFd;
using rendezvous::SocketAddress;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kRetry{20};
// So long an address from a store is tried: it may be that of a machine which is gone.
constexpr milliseconds kOneTry{2'000};
// So late nobody looks again: what he would find could not be told in time.
constexpr milliseconds kLastTry{200};
constexpr const char* kRankZero = "rank 0";  // the key of its address

// What rank 0 says to each; the Hello of each rank follows.
struct Welcome {
  std::uint64_t magic = kMeshMagic;
  Token token{};
  char refusal[248] = {};
  std::uint64_t other_key = 0;  // 1: that is what the refusal is for
};

std::string seconds(milliseconds timeout) { return std::to_string(timeout.count() / 1000) + " s"; }

SocketAddress bound_to(int fd) {
  SocketAddress address;
  address.length = sizeof address.bytes;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.bytes), &address.length) != 0)
    throw_errno("group: getsockname");
  return address;
}

Hello hello_of(const MeshPlace& place, const SocketAddress& address, const std::string& key) {
  Hello hello{.rank = place.rank,
              .world = place.world,
              .local_rank = place.local_rank,
              .local_world = place.local_world,
              .address = address};
  char host[sizeof hello.host] = {};
  gethostname(host, sizeof host - 1);
  put_text(hello.host, host);
  put_text(hello.key, key);
  return hello;
}

// What failures call a rank.
int name_in(const MeshPlace& place, int rank) { return place.names.empty() ? rank : place.names[std::size_t(rank)]; }

std::string missing(const MeshPlace& place, const std::vector<Hello>& all) {
  std::string ranks;
  for (int rank = 0; rank < place.world; ++rank)
    if (all[std::size_t(rank)].world == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(name_in(place, rank));
  return ranks;
}

// Where rank 0 lets the others in, and the key that they show.
struct Entrance {
  SocketAddress address;
  std::string key;
};

std::string at_master(const MeshPlace& place) {
  return "MASTER_ADDR " + place.host + ", MASTER_PORT " + std::to_string(place.port);
}

// The launcher's store has the entrance of this attempt's rank 0: its address, and a number that no other one has.
std::optional<Entrance> entrance_in_store(const MeshPlace& place) {
  const std::optional<std::string> text = place.meeting->look_up(kRankZero);
  if (!text) return std::nullopt;
  const std::size_t space = text->find(' ');
  const std::optional<SocketAddress> address = rendezvous::parse_address(text->substr(0, space));
  if (space == std::string::npos || !address)
    throw Error("group: " + place.meeting->name() + " has '" + base::shown(*text) + "' for rank 0's address");
  return Entrance{*address, text->substr(space + 1) + " " + place.key};
}

// Opens it. At MASTER_PORT, unless the launcher has a store: it may listen there itself.
UniqueFd open_entrance(const MeshPlace& place, const SocketAddress& own, const SocketAddress& master,
                       Entrance& entrance) {
  if (place.meeting == nullptr) {
    entrance = {.address = master, .key = place.key};
    return listener_at(place.rank, master, at_master(place));
  }
  UniqueFd listener = listener_at(place.rank, own, "its own address");
  const std::string number = hex_of(new_token());
  entrance = {.address = bound_to(listener.get()), .key = number + " " + place.key};
  place.meeting->publish(kRankZero, to_text(entrance.address) + " " + number);
  return listener;
}

void refuse(int fd, const std::string& why, const Patience& patience, bool other_key = false) {
  Welcome refused{.other_key = other_key ? 1u : 0u};
  put_text(refused.refusal, why);
  write_all(fd, &refused, sizeof refused, patience);
}

struct Table {
  Token token{};
  std::vector<Hello> ranks;
};

Table gather_table(const MeshPlace& place, int listener, const Entrance& entrance, const Hello& own,
                   const Patience& patience) {
  Table table{.token = new_token(), .ranks = std::vector<Hello>(std::size_t(place.world))};
  std::vector<Hello>& all = table.ranks;
  all[0] = own;
  std::vector<UniqueFd> ranks(std::size_t(place.world));
  Door<Hello> door(listener);
  for (int here = 1; here < place.world;) {
    auto came = door.next(patience);
    if (!came)
      throw Error("group: these ranks did not come to " + to_text(entrance.address) + " within " +
                  seconds(place.timeout) + ": " + missing(place, all));
    auto& [fd, hello] = *came;
    if (text_in(hello.key) != entrance.key.substr(0, sizeof hello.key - 1)) {
      refuse(fd.get(), "rank 0 at this port is of another job than '" + shown_in(hello.key) + "'", patience, true);
      continue;
    }
    if (const std::string why = refusal_of(hello, place.world, all); !why.empty()) {
      refuse(fd.get(), why, patience);
      throw UsageError("group: " + why);
    }
    all[std::size_t(hello.rank)] = hello;
    ranks[std::size_t(hello.rank)] = std::move(fd);
    ++here;
  }
  const Welcome welcome{.token = table.token};
  for (int rank = 1; rank < place.world; ++rank) {
    const int fd = ranks[std::size_t(rank)].get();
    if (!write_all(fd, &welcome, sizeof welcome, patience) ||
        !write_all(fd, all.data(), all.size() * sizeof(Hello), patience))
      throw Error("group: rank " + std::to_string(name_in(place, rank)) + " went away while the group was forming");
  }
  return table;
}

UniqueFd reach_rank_zero(const MeshPlace& place, const SocketAddress& master, Entrance& entrance,
                         const Patience& patience) {
  for (;;) {
    const std::optional<Entrance> found =
        place.meeting == nullptr ? Entrance{.address = master, .key = place.key} : entrance_in_store(place);
    Patience once = patience;
    if (place.meeting != nullptr) once.deadline = std::min(once.deadline, Clock::now() + kOneTry);
    if (found) {
      entrance = *found;
      if (UniqueFd fd = connect_by(entrance.address, once)) return fd;
    }
    if (patience.is_over())
      throw Error("group: rank " + std::to_string(name_in(place, 0)) + " was not to be reached " +
                  (place.meeting == nullptr ? "at " + at_master(place)
                   : found                  ? "at " + to_text(entrance.address)
                                            : "through " + place.meeting->name()) +
                  " within " + seconds(place.timeout));
    std::this_thread::sleep_for(kRetry);
  }
}

// How who listens there begins to speak. Nothing: the store tells of another entrance by now, so it is not rank 0.
std::optional<Opening> opening_at(const MeshPlace& place, int fd, const Entrance& entrance, const Patience& patience) {
  if (place.meeting == nullptr || !place.meeting->outlives_attempts()) return await_opening(fd, kMeshMagic, patience);
  for (;;) {
    Patience once = patience;
    once.deadline = std::min(once.deadline, Clock::now() + kOneTry);
    const Opening opening = await_opening(fd, kMeshMagic, once);
    if (opening != Opening::late || patience.is_over()) return opening;
    const std::optional<Entrance> told = entrance_in_store(place);
    if (told && told->key != entrance.key) return std::nullopt;
  }
}

// Two jobs of one MASTER_PORT are a mistake; a store has what a rank 0 that is dead has left.
[[noreturn]] void throw_other(const MeshPlace& place, const Entrance& entrance, const std::string& who) {
  const std::string rank_zero = "group: rank " + std::to_string(name_in(place, 0));
  if (place.meeting == nullptr) throw UsageError(rank_zero + " is not at " + at_master(place) + ": " + who);
  throw Error(rank_zero + " was not to be reached within " + seconds(place.timeout) + ": " + place.meeting->name() +
              " has " + to_text(entrance.address) + " for its address, and " + who);
}

// Nothing: whoever has got the address of a rank 0 that is dead is somebody else. This job's may have yet to come.
std::optional<Table> ask_for_table(const MeshPlace& place, int fd, const Entrance& entrance, const Hello& own,
                                   const Patience& patience) {
  Table table{.ranks = std::vector<Hello>(std::size_t(place.world))};
  Welcome welcome;
  const auto lost = [&] {
    return Error("group: rank " + std::to_string(name_in(place, 0)) + " went away while the group was forming, or " +
                 seconds(place.timeout) + " were not enough");
  };
  if (!write_all(fd, &own, sizeof own, patience)) throw lost();
  const std::optional<Opening> opening = opening_at(place, fd, entrance, patience);
  if (!opening) return std::nullopt;
  const bool speaks = *opening == Opening::right && read_all(fd, &welcome, sizeof welcome, patience);
  if (!speaks && *opening != Opening::other) throw lost();
  const bool is_rank_zero = speaks && welcome.magic == kMeshMagic;
  if (!is_rank_zero || welcome.other_key != 0) {
    const bool may_come = place.meeting != nullptr && Clock::now() + kLastTry < patience.deadline;
    if (may_come) return std::nullopt;
    throw_other(place, entrance, is_rank_zero ? shown_in(welcome.refusal) : "somebody else listens there");
  }
  if (welcome.refusal[0] != 0) throw UsageError("group: " + shown_in(welcome.refusal));
  if (!read_all(fd, table.ranks.data(), table.ranks.size() * sizeof(Hello), patience)) throw lost();
  if (!std::ranges::all_of(table.ranks, &Hello::is_sound))
    throw Error("group: rank 0 has told of ranks what cannot be; are all of one version of lockstep?");
  table.token = welcome.token;
  return table;
}

}  // namespace

Mesh make_mesh(const MeshPlace& place) {
  if (place.world > kMostWorld)
    throw UsageError("group: " + std::to_string(place.world) + " ranks over a network; at most " +
                     std::to_string(kMostWorld) + " are possible");
  const Patience patience{Clock::now() + place.timeout, place.check};
  const std::vector<rendezvous::Interface> interfaces = rendezvous::own_interfaces();
  const SocketAddress master = rendezvous::reachable("group: MASTER_ADDR", place.host,
                                                     rendezvous::resolve("group: MASTER_ADDR", place.host, place.port),
                                                     interfaces, place.interface);
  Entrance entrance;
  UniqueFd door, to_zero, listener;
  SocketAddress own = place.meeting == nullptr ? master : rendezvous::own_end_towards(master);
  std::optional<Table> met;
  for (;;) {
    if (place.rank != 0) {
      to_zero = reach_rank_zero(place, master, entrance, patience);
      own = bound_to(to_zero.get());
    }
    if (!place.interface.empty()) own = rendezvous::address_of(place.interface, interfaces);
    own.set_port(0);
    if (place.rank == 0) door = open_entrance(place, own, master, entrance);
    listener = listener_at(place.rank, own, place.rank == 0 ? "MASTER_ADDR " + place.host : "its own address");
    const Hello hello = hello_of(place, bound_to(listener.get()), entrance.key);
    met = place.rank == 0 ? gather_table(place, door.get(), entrance, hello, patience)
                          : ask_for_table(place, to_zero.get(), entrance, hello, patience);
    if (met) break;
    std::this_thread::sleep_for(kRetry);
  }
  const Table& table = *met;
  if (place.rank == 0 && place.meeting != nullptr) place.meeting->withdraw(kRankZero);
  Mesh mesh{.peers = {}, .own = own};
  mesh.peers.resize(std::size_t(place.world));
  const std::vector<int> nodes = nodes_of(table.ranks);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    MeshPeer& peer = mesh.peers[rank];
    peer.host = shown_in(table.ranks[rank].host);
    peer.node = nodes[rank];
    peer.rank = name_in(place, int(rank));
  }
  Roster roster{.rank = place.rank, .token = table.token, .addresses = {}, .timeout = place.timeout};
  for (const Hello& rank : table.ranks) roster.addresses.push_back(rank.address);
  connect_all(listener.get(), roster, mesh.peers, patience);
  return mesh;
}

}  // namespace lockstep::comm
