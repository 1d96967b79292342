#include "lockstep/comm/network/tcp_mesh.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

using base::UniqueFd;
using rendezvous::SocketAddress;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Token = std::array<unsigned char, 16>;

constexpr std::uint64_t kMeshMagic = 0x4c4b6d6573683031;  // "LKmesh01"
constexpr milliseconds kRetry{20};
constexpr std::size_t kMostWorld = 4096;

// What a rank says of itself to rank 0.
struct Hello {
  std::uint64_t magic = kMeshMagic;
  std::int32_t rank = 0, world = 0, local_rank = 0, local_world = 0;
  SocketAddress address;  // where it listens
  char host[64] = {};
  char key[256] = {};
};

// What rank 0 says to each; the Hello of each rank follows.
struct Welcome {
  std::uint64_t magic = kMeshMagic;
  Token token{};
  char refusal[256] = {};
};

// What a rank says to one of a lower number.
struct Greeting {
  std::uint64_t magic = kMeshMagic;
  Token token{};
  std::int32_t rank = 0;
  std::int32_t news = 0;
};

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& text) {
  text.copy(to, n - 1);
}

template <std::size_t n>
std::string text_of(const char (&from)[n]) {
  return {from, strnlen(from, n)};
}

std::string seconds(milliseconds timeout) { return std::to_string(timeout.count() / 1000) + " s"; }

// Until when something is waited for, and who says that there is no sense in it any more.
struct Patience {
  Clock::time_point deadline;
  const std::function<void()>& check;  // throws

  bool is_over() const {
    check();
    return Clock::now() >= deadline;
  }
  // For poll(): so long, then is_over() is asked again.
  int slice() const {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    return int(std::clamp<long long>(left, 0, 100));
  }
};

// Whether all of it was moved: not when the other side went away, or the deadline came.
bool write_all(int fd, const void* bytes, std::size_t size, const Patience& patience) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t sent = send(fd, static_cast<const char*>(bytes) + at, size - at, MSG_NOSIGNAL);
    if (sent > 0) at += std::size_t(sent);
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd waits{.fd = fd, .events = POLLOUT, .revents = 0};
    if (poll(&waits, 1, patience.slice()) <= 0 && patience.is_over()) return false;
  }
  return true;
}

bool read_all(int fd, void* bytes, std::size_t size, const Patience& patience) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = recv(fd, static_cast<char*>(bytes) + at, size - at, 0);
    if (got > 0) at += std::size_t(got);
    if (got > 0 || (got < 0 && errno == EINTR)) continue;
    if (got == 0 || errno != EAGAIN) return false;
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&waits, 1, patience.slice()) <= 0 && patience.is_over()) return false;
  }
  return true;
}

SocketAddress bound_to(int fd) {
  SocketAddress address;
  address.length = sizeof address.bytes;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.bytes), &address.length) != 0)
    throw_errno("group: getsockname");
  return address;
}

// Connected, or nothing.
UniqueFd connect_by(const SocketAddress& address, const Patience& patience) {
  UniqueFd fd = rendezvous::begin_connect(address, {});
  if (!fd) return {};
  pollfd waits{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  while (poll(&waits, 1, patience.slice()) <= 0)
    if (patience.is_over()) return {};
  if (rendezvous::connect_error(fd.get()) != 0) return {};
  return fd;
}

// Who has come to a door and said what each says first, a T. As many strangers as like may hang about until all have
// come; who speaks slowly is not waited for alone.
template <class T>
class Door {
 public:
  explicit Door(int listener) : listener_(listener) {}

  // The next that has spoken; nothing when the deadline has come.
  std::optional<std::pair<UniqueFd, T>> next(const Patience& patience) {
    while (!patience.is_over()) {
      std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests_) polled.push_back({.fd = guest.fd.get(), .events = POLLIN, .revents = 0});
      const int ready = poll(polled.data(), polled.size(), patience.slice());
      if (ready < 0 && errno != EINTR) throw_errno("group: poll");
      if (ready <= 0) continue;
      for (std::size_t i = 0; i < guests_.size(); ++i) {
        if (polled[1 + i].revents == 0) continue;
        Guest& guest = guests_[i];
        const ssize_t got = recv(guest.fd.get(), guest.bytes.data() + guest.size, sizeof(T) - guest.size, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got > 0) guest.size += std::size_t(got);
        if (got > 0 && guest.size < sizeof(T)) continue;
        Guest done = std::move(guest);
        guests_.erase(guests_.begin() + std::ptrdiff_t(i));
        T said;
        std::memcpy(&said, done.bytes.data(), sizeof said);
        if (got > 0 && said.magic == kMeshMagic) return std::pair(std::move(done.fd), said);
        break;  // a stranger; the list is another now
      }
      if (polled[0].revents != 0)
        if (UniqueFd fd = rendezvous::accept_at(listener_)) {
          if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());
          guests_.push_back({.fd = std::move(fd)});
        }
    }
    return {};
  }

 private:
  static constexpr std::size_t kMostGuests = 512;
  struct Guest {
    UniqueFd fd;
    std::array<std::byte, sizeof(T)> bytes{};
    std::size_t size = 0;
  };
  const int listener_;
  std::vector<Guest> guests_;
};

Hello hello_of(const MeshPlace& place, const SocketAddress& address) {
  Hello hello{.rank = place.rank,
              .world = place.world,
              .local_rank = place.local_rank,
              .local_world = place.local_world,
              .address = address};
  char host[sizeof hello.host] = {};
  gethostname(host, sizeof host - 1);
  copy_text(hello.host, host);
  copy_text(hello.key, place.key);
  return hello;
}

std::string missing(const std::vector<Hello>& all) {
  std::string ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].world == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return ranks;
}

// Why rank 0 does not take somebody in; empty: it does.
std::string refusal_of(const MeshPlace& place, const Hello& hello, const std::vector<Hello>& all) {
  const std::string who = "rank " + std::to_string(hello.rank) + " (" + text_of(hello.host) + ")";
  if (hello.world != place.world)
    return who + " was started for " + std::to_string(hello.world) + " ranks, rank 0 for " +
           std::to_string(place.world);
  if (hello.rank < 1 || hello.rank >= place.world)
    return who + " is none of the ranks 1 to " + std::to_string(place.world - 1);
  if (all[std::size_t(hello.rank)].world != 0)
    return "two processes are rank " + std::to_string(hello.rank) + ": on " +
           text_of(all[std::size_t(hello.rank)].host) + " and on " + text_of(hello.host);
  return {};
}

struct Table {
  Token token{};
  std::vector<Hello> ranks;
};

UniqueFd listener_at(const MeshPlace& place, const SocketAddress& address, const std::string& what) {
  rendezvous::Listening listening = rendezvous::listen_at(address);
  if (listening.fd) return std::move(listening.fd);
  throw UsageError("group: rank " + std::to_string(place.rank) + " cannot listen at " + what + ": " +
                   std::strerror(listening.error));
}

Table gather_table(const MeshPlace& place, const SocketAddress& meeting, const Hello& own, const Patience& patience) {
  const UniqueFd listener =
      listener_at(place, meeting, "MASTER_ADDR " + place.host + ", MASTER_PORT " + std::to_string(place.port));
  Table table{.ranks = std::vector<Hello>(std::size_t(place.world))};
  table.ranks[0] = own;
  if (getrandom(table.token.data(), table.token.size(), 0) != ssize_t(table.token.size()))
    throw_errno("group: getrandom");
  std::vector<UniqueFd> ranks(std::size_t(place.world));
  Door<Hello> door(listener.get());
  for (int here = 1; here < place.world;) {
    auto came = door.next(patience);
    if (!came)
      throw Error("group: these ranks did not come to " + place.host + ":" + std::to_string(place.port) + " within " +
                  seconds(place.timeout) + ": " + missing(table.ranks));
    auto& [fd, hello] = *came;
    if (text_of(hello.key) != place.key.substr(0, sizeof hello.key - 1)) {
      Welcome refused;
      copy_text(refused.refusal, "rank 0 at this port is of another job, '" + place.key + "'");
      write_all(fd.get(), &refused, sizeof refused, patience);
      continue;
    }
    if (const std::string why = refusal_of(place, hello, table.ranks); !why.empty()) {
      Welcome refused;
      copy_text(refused.refusal, why);
      write_all(fd.get(), &refused, sizeof refused, patience);
      throw UsageError("group: " + why);
    }
    table.ranks[std::size_t(hello.rank)] = hello;
    ranks[std::size_t(hello.rank)] = std::move(fd);
    ++here;
  }
  const Welcome welcome{.token = table.token};
  for (int rank = 1; rank < place.world; ++rank) {
    const int fd = ranks[std::size_t(rank)].get();
    if (!write_all(fd, &welcome, sizeof welcome, patience) ||
        !write_all(fd, table.ranks.data(), table.ranks.size() * sizeof(Hello), patience))
      throw Error("group: rank " + std::to_string(rank) + " went away while the group was forming");
  }
  return table;
}

UniqueFd reach_rank_zero(const MeshPlace& place, const SocketAddress& meeting, const Patience& patience) {
  for (;;) {
    if (UniqueFd fd = connect_by(meeting, patience)) return fd;
    if (patience.is_over())
      throw Error("group: rank 0 was not to be reached at MASTER_ADDR " + place.host + ", MASTER_PORT " +
                  std::to_string(place.port) + " within " + seconds(place.timeout));
    std::this_thread::sleep_for(kRetry);
  }
}

Table ask_for_table(const MeshPlace& place, int fd, const Hello& own, const Patience& patience) {
  Table table{.ranks = std::vector<Hello>(std::size_t(place.world))};
  Welcome welcome;
  const auto lost = [&] {
    return Error("group: rank 0 went away while the group was forming, or " + seconds(place.timeout) +
                 " were not enough");
  };
  if (!write_all(fd, &own, sizeof own, patience) || !read_all(fd, &welcome, sizeof welcome, patience)) throw lost();
  if (welcome.magic != kMeshMagic)
    throw UsageError("group: at MASTER_ADDR " + place.host + ", MASTER_PORT " + std::to_string(place.port) +
                     " somebody else listens than rank 0 of this job");
  if (welcome.refusal[0] != 0) throw UsageError("group: " + text_of(welcome.refusal));
  if (!read_all(fd, table.ranks.data(), table.ranks.size() * sizeof(Hello), patience)) throw lost();
  table.token = welcome.token;
  return table;
}

// Ranks of a node follow one another; its number is that of the nodes before it.
int number_nodes(const std::vector<Hello>& ranks, std::vector<MeshPeer>& peers) {
  int node = -1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Hello& hello = ranks[rank];
    node += hello.local_rank == 0 ? 1 : 0;
    const bool follows = hello.local_rank == 0 || (rank > 0 && hello.local_rank == ranks[rank - 1].local_rank + 1 &&
                                                   hello.local_world == ranks[rank - 1].local_world);
    const bool ends_well = hello.local_rank + 1 == hello.local_world ||
                           (rank + 1 < ranks.size() && ranks[rank + 1].local_rank == hello.local_rank + 1);
    if (!follows || !ends_well)
      throw UsageError("group: rank " + std::to_string(rank) + " (" + text_of(hello.host) + ") is local rank " +
                       std::to_string(hello.local_rank) + " of " + std::to_string(hello.local_world) +
                       " there; the ranks of a node must follow one another");
    peers[rank].node = node;
    peers[rank].host = text_of(hello.host);
  }
  return node + 1;
}

void connect_lower(const MeshPlace& place, const Table& table, std::vector<MeshPeer>& peers, const Patience& patience) {
  for (int peer = 0; peer < place.rank; ++peer)
    for (const bool news : {false, true}) {
      UniqueFd fd = connect_by(table.ranks[std::size_t(peer)].address, patience);
      const Greeting greeting{.token = table.token, .rank = place.rank, .news = news};
      if (!fd || !write_all(fd.get(), &greeting, sizeof greeting, patience))
        throw Error("group: rank " + std::to_string(place.rank) + " cannot reach rank " + std::to_string(peer) + " (" +
                    peers[std::size_t(peer)].host + "), whose ports may be closed to it");
      (news ? peers[std::size_t(peer)].news : peers[std::size_t(peer)].data) = std::move(fd);
    }
}

void await_higher(const MeshPlace& place, int listener, const Table& table, std::vector<MeshPeer>& peers,
                  const Patience& patience) {
  Door<Greeting> door(listener);
  for (int left = 2 * (place.world - 1 - place.rank); left > 0;) {
    auto came = door.next(patience);
    if (!came) {
      std::string late;
      for (std::size_t peer = std::size_t(place.rank) + 1; peer < peers.size(); ++peer)
        if (!peers[peer].data || !peers[peer].news) late += (late.empty() ? "" : ", ") + std::to_string(peer);
      throw Error("group: these ranks did not connect to rank " + std::to_string(place.rank) + " within " +
                  seconds(place.timeout) + ": " + late);
    }
    auto& [fd, greeting] = *came;
    if (greeting.token != table.token || greeting.rank <= place.rank || greeting.rank >= place.world) continue;
    MeshPeer& peer = peers[std::size_t(greeting.rank)];
    UniqueFd& place_of = greeting.news != 0 ? peer.news : peer.data;
    if (place_of) continue;
    place_of = std::move(fd);
    --left;
  }
}

}  // namespace

Mesh make_mesh(const MeshPlace& place) {
  if (place.world > int(kMostWorld))
    throw UsageError("group: " + std::to_string(place.world) + " ranks over a network; at most " +
                     std::to_string(kMostWorld) + " are possible");
  const Patience patience{Clock::now() + place.timeout, place.check};
  const std::vector<rendezvous::Interface> interfaces = rendezvous::own_interfaces();
  const SocketAddress meeting = rendezvous::reachable("group: MASTER_ADDR", place.host,
                                                      rendezvous::resolve("group: MASTER_ADDR", place.host, place.port),
                                                      interfaces, place.interface);
  UniqueFd to_zero;
  if (place.rank != 0) to_zero = reach_rank_zero(place, meeting, patience);
  SocketAddress own = place.rank == 0 ? meeting : bound_to(to_zero.get());
  if (!place.interface.empty()) own = rendezvous::address_of(place.interface, interfaces);
  own.set_port(0);
  const UniqueFd listener = listener_at(place, own, place.rank == 0 ? "MASTER_ADDR " + place.host : "its own address");
  const Hello hello = hello_of(place, bound_to(listener.get()));
  const Table table = place.rank == 0 ? gather_table(place, meeting, hello, patience)
                                      : ask_for_table(place, to_zero.get(), hello, patience);
  Mesh mesh;
  mesh.peers.resize(std::size_t(place.world));
  mesh.nodes = number_nodes(table.ranks, mesh.peers);
  mesh.node = mesh.peers[std::size_t(place.rank)].node;
  connect_lower(place, table, mesh.peers, patience);
  await_higher(place, listener.get(), table, mesh.peers, patience);
  return mesh;
}

}  // namespace lockstep::comm
