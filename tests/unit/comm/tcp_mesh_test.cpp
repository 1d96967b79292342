// Ranks that meet over TCP, and who else comes to their door.

#include "lockstep/comm/network/tcp_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/meeting.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// An address of this process alone, and a port of each test's own.
std::string own_host() {
  return "127." + std::to_string(2 + getpid() / 62'500 % 250) + "." + std::to_string(getpid() / 250 % 250) + "." +
         std::to_string(1 + getpid() % 250);
}
int next_port() {
  static int port = 29'500;
  return port++;
}

MeshPlace place_of(int rank, int world, int port, std::chrono::milliseconds timeout = 20'000ms) {
  return {.rank = rank, .world = world, .host = own_host(), .port = port, .key = "job", .timeout = timeout};
}

std::string said_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// All ranks at once, in threads; what each throws.
std::vector<std::string> meet(
    const std::vector<MeshPlace>& places, const std::function<void(int, Mesh)>& then = [](int, Mesh) {}) {
  std::vector<std::string> errors(places.size());
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < places.size(); ++i)
    ranks.emplace_back([&, i] { errors[i] = said_by([&] { then(int(i), make_mesh(places[i])); }); });
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST(TcpMesh, StrangersAtTheDoorChangeNothing) {
  const int port = next_port();
  std::vector<base::UniqueFd> strangers;
  std::thread crowd([&] {
    for (int i = 0; i < 200; ++i) {
      strangers.push_back(rendezvous::begin_connect(rendezvous::resolve("test", own_host(), port), {}));
      const std::string noise(std::size_t(i * 7), '\xff');
      if (strangers.back()) send(strangers.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  });
  const std::vector<MeshPlace> places{place_of(0, 3, port), place_of(1, 3, port), place_of(2, 3, port)};
  const auto errors = meet(places, [](int rank, Mesh mesh) {
    for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(mesh.peers[std::size_t(peer)].node, peer);
    for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(bool(mesh.peers[std::size_t(peer)].data), peer != rank);
  });
  crowd.join();
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST(TcpMesh, WhoWasStartedForAnotherJobIsTold) {
  const int port = next_port();
  const auto errors = meet({place_of(0, 2, port), place_of(1, 3, port)});
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("was started for 3 ranks, rank 0 for 2"));
}

TEST(TcpMesh, NamesWhoDidNotCome) {
  const int port = next_port();
  EXPECT_THAT(said_by([&] { make_mesh(place_of(0, 3, port, 1'000ms)); }), HasSubstr("within 1 s: 1, 2"));
  EXPECT_THAT(said_by([&] { make_mesh(place_of(1, 3, port, 1'000ms)); }),
              HasSubstr("rank 0 was not to be reached at MASTER_ADDR 127."));
}

TEST(TcpMesh, RefusesAnAddressThatIsNotItsOwn) {
  MeshPlace place = place_of(0, 2, 29'500);
  place.host = "192.0.2.1";  // of nobody (RFC 5737)
  EXPECT_THAT(said_by([&] { make_mesh(place); }), HasSubstr("rank 0 cannot listen at MASTER_ADDR 192.0.2.1"));
}

// A store of this process, with what a dead attempt has left: an address at which nobody listens.
class OneStore final : public Meeting {
 public:
  void publish(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::optional<std::string> look_up(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  void withdraw(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::string name() const override { return "the test's store"; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_{{"rank 0", own_host() + ":1 of-a-dead-one"}};
};

TEST(TcpMesh, MeetsThroughAStoreThatHasWhatTheDeadLeft) {
  const int port = next_port();
  const rendezvous::Listening taken = rendezvous::listen_at(rendezvous::resolve("test", own_host(), port));
  const auto store = std::make_shared<OneStore>();
  std::vector<MeshPlace> places{place_of(0, 3, port), place_of(1, 3, port), place_of(2, 3, port)};
  for (MeshPlace& place : places) place.meeting = store;
  for (MeshPlace& place : places) place.names = {5, 7, 9};
  std::vector<std::string> errors(3);
  std::thread others([&] { errors = meet({places[1], places[2]}); });
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(said_by([&] { EXPECT_EQ(make_mesh(places[0]).peers[2].rank, 9); }), "");
  others.join();
  EXPECT_THAT(errors, ::testing::Each(""));
  EXPECT_EQ(store->look_up("rank 0"), std::nullopt);
}

TEST(TcpMesh, NamesTheStoreThatDoesNotTellOfRankZero) {
  MeshPlace place = place_of(1, 2, next_port(), 100ms);
  place.meeting = std::make_shared<OneStore>();
  EXPECT_THAT(said_by([&] { make_mesh(place); }), HasSubstr("rank 0 was not to be reached at " + own_host() + ":1 "));
  place.meeting->withdraw("rank 0");
  EXPECT_THAT(said_by([&] { make_mesh(place); }), HasSubstr("rank 0 was not to be reached through the test's store"));
}

// As torchrun's agent has it: at MASTER_PORT itself.
TEST(TcpMesh, MeetsThroughATcpStore) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent(own_host(), options);
  std::vector<MeshPlace> places{place_of(0, 2, agent.getPort()), place_of(1, 2, agent.getPort())};
  const auto store_of = [&](std::chrono::milliseconds timeout, int port) {
    return meeting_of({.master_addr = own_host(), .master_port = port, .store_at_master = true}, timeout);
  };
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (MeshPlace& place : places) place.meeting = store_of(20s, agent.getPort());
    EXPECT_THAT(meet(places), ::testing::Each("")) << attempt;
  }
  EXPECT_THAT(said_by([&] { store_of(100ms, 1); }), ::testing::StartsWith("group: torchrun's store at " + own_host()));
}

TEST(StreamWire, NamesBothSidesOfAMismatch) {
  const int port = next_port();
  const auto errors = meet({place_of(0, 2, port), place_of(1, 2, port)}, [](int rank, Mesh mesh) {
    StreamWire wire(std::move(mesh), {.rank = rank, .timeout = 20'000ms});
    std::byte mine[8] = {}, theirs[8];
    const Outgoing out{1 - rank, mine};
    const Incoming in{1 - rank, theirs};
    wire.exchange({.collective = Collective::step, .elements = 1}, {&out, 1}, {&in, 1});
    wire.exchange({.collective = Collective::step, .elements = 2 + rank}, {&out, 1}, {&in, 1});
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("ranks disagree: "));
}

TEST(StreamWire, WaitsNoLongerThanItsTimeout) {
  const int port = next_port();
  const auto errors = meet({place_of(0, 2, port), place_of(1, 2, port)}, [](int rank, Mesh mesh) {
    StreamWire wire(std::move(mesh), {.rank = rank, .timeout = 200ms});
    std::byte theirs[8];
    const Incoming in{1 - rank, theirs};
    if (rank == 0) wire.exchange({.collective = Collective::step, .elements = 1}, {}, {&in, 1});
    std::this_thread::sleep_for(600ms);
  });
  EXPECT_THAT(errors[0], HasSubstr("waited 200 ms for rank 1"));
}

TEST(StreamWire, AtTheDeadlineItIsTheOneThatIsLate) {
  for (const bool both : {false, true}) {
    const int port = next_port();
    const auto errors =
        meet({place_of(0, 3, port), place_of(1, 3, port), place_of(2, 3, port)}, [&](int rank, Mesh mesh) {
          StreamWire wire(std::move(mesh), {.rank = rank, .timeout = 300ms});
          if (rank > 0) return std::this_thread::sleep_for(2s);
          std::byte theirs[8];
          std::vector<Incoming> in{{2, theirs}};
          if (both) in.push_back({1, theirs});
          wire.exchange({.collective = Collective::step, .elements = 1}, {}, in);
        });
    EXPECT_THAT(errors[0], ::testing::StartsWith(both ? "rank 0: waited 300 ms for rank 1 ("
                                                      : "rank 2: rank 0 waited 300 ms for rank 2 ("));
  }
}

// A mesh of two by socket pairs: this rank's ends, and what a peer would hold.
std::pair<Mesh, MeshPeer> pair_of(int rank) {
  std::pair<Mesh, MeshPeer> made;
  made.first.peers.resize(2);
  made.first.peers[1].rank = 1;
  MeshPeer& mine = made.first.peers[std::size_t(1 - rank)];
  for (auto [here, there] : {std::pair(&mine.data, &made.second.data), std::pair(&mine.news, &made.second.news)}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    *here = base::UniqueFd(ends[0]);
    *there = base::UniqueFd(ends[1]);
  }
  return made;
}

// What a peer sends as its first message, of these bytes.
std::string sent_by_peer(std::span<const std::byte> bytes) {
  auto [mesh, reader] = pair_of(1);
  std::string seen;
  std::thread listener([&, &reader = reader] {
    std::array<char, 4096> piece;
    for (ssize_t got = 0; (got = recv(reader.data.get(), piece.data(), piece.size(), 0)) > 0;)
      seen.append(piece.data(), std::size_t(got));
  });
  {
    StreamWire wire(std::move(mesh), {.rank = 1, .timeout = 20s});
    const Outgoing out{0, bytes};
    wire.exchange({.collective = Collective::step, .elements = 1}, {&out, 1}, {});
  }
  listener.join();
  return seen;
}

// Takes so many bytes of a peer that sends `seen`; what is thrown.
std::string error_of(const std::string& seen, std::span<std::byte> bytes) {
  auto [mesh, peer] = pair_of(0);
  std::thread sender([&, &peer = peer] {
    for (std::size_t at = 0; at < seen.size();) {
      const ssize_t sent = send(peer.data.get(), seen.data() + at, seen.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += std::size_t(sent);
    }
  });
  const std::string error = said_by([&, &mesh = mesh] {
    StreamWire wire(std::move(mesh), {.rank = 0, .timeout = 20s});
    const Incoming in{1, bytes};
    wire.exchange({.collective = Collective::step, .elements = 1}, {}, {&in, 1});
  });
  sender.join();
  return error;
}

TEST(StreamWire, FindsEveryFlippedBit) {
  for (const std::size_t size : {0, 1, 33}) {
    std::vector<std::byte> bytes(size, std::byte{7}), theirs(size);
    const std::string seen = sent_by_peer(bytes);
    EXPECT_EQ(error_of(seen, theirs), "");
    EXPECT_EQ(theirs, bytes);
    for (std::size_t bit = 0; bit < 8 * seen.size(); ++bit) {
      std::string flipped = seen;
      flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
      EXPECT_THAT(error_of(flipped, theirs), HasSubstr(" sent came damaged, in ")) << size << " bytes, bit " << bit;
    }
  }
}

TEST(StreamWire, NamesWhoseBytesCameDamaged) {
  std::vector<std::byte> bytes(1'000'003), theirs(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 / 3);
  const std::string seen = sent_by_peer(bytes);
  EXPECT_EQ(error_of(seen, theirs), "");
  EXPECT_EQ(theirs, bytes);
  for (const std::size_t behind : {1, 5, 300'000, 999'999}) {  // bytes before the end
    std::string flipped = seen;
    flipped[seen.size() - behind] ^= 16;
    EXPECT_THAT(error_of(flipped, theirs), ::testing::MatchesRegex("what rank 1 \\(\\) sent came damaged, in .*"));
  }
}

TEST(StreamWire, NewsThatComeInPiecesAreHeard) {
  auto [mesh, peer] = pair_of(0);
  auto [failing, reader] = pair_of(1);
  StreamWire(std::move(failing), {.rank = 1, .timeout = 20s}).abort({.rank = 1, .cause = "the disk is full"});
  std::vector<char> news(10'000);
  news.resize(std::size_t(recv(reader.news.get(), news.data(), news.size(), MSG_DONTWAIT)));
  StreamWire wire(std::move(mesh), {.rank = 0, .timeout = 20s});
  std::thread sender([&, &peer = peer] {
    for (std::size_t at = 0; at < news.size(); at += 400) {
      send(peer.news.get(), news.data() + at, std::min<std::size_t>(400, news.size() - at), 0);
      std::this_thread::sleep_for(50ms);
    }
  });
  std::byte theirs[8];
  const Incoming in{1, theirs};
  EXPECT_THAT(said_by([&] {
                wire.exchange({.collective = Collective::step}, {}, {&in, 1});
              }),
              HasSubstr("rank 1: the disk is full"));
  sender.join();
}

// What is said of the wait for a rank of four that comes a while after something was said. Ranks 0 and 1 are on one
// node, and each takes rank 0 to be waiting for others.
std::string said_of(int late, const std::function<void(int rank, Wire& wire)>& call) {
  const int port = next_port();
  std::vector<MeshPlace> places;
  for (int rank = 0; rank < 4; ++rank) places.push_back(place_of(rank, 4, port));
  places[0].local_world = places[1].local_world = 2;
  places[1].local_rank = 1;
  ::testing::internal::CaptureStderr();
  const auto errors = meet(places, [&](int rank, Mesh mesh) {
    const WireTies ties{.stall_warning = 20ms,
                        .is_away = [](int seat) { return seat == 0; },
                        .place_of = [](int seat) { return "seat " + std::to_string(seat); },
                        .ask_where = [](int seat) { return std::fprintf(stderr, "asked: seat %d\n", seat) > 0; }};
    StreamWire wire(std::move(mesh), {.rank = rank, .timeout = 60'000ms, .ties = ties});
    const auto is_quiet = [] {
      struct stat said {};
      return fstat(STDERR_FILENO, &said) == 0 && said.st_size == 0;
    };
    for (int looks = 0; rank == late && is_quiet() && looks < 20'000; ++looks) std::this_thread::sleep_for(1ms);
    if (rank == late) std::this_thread::sleep_for(100ms);  // in which nobody else speaks
    call(rank, wire);
  });
  EXPECT_THAT(errors, ::testing::Each(""));
  return ::testing::internal::GetCapturedStderr();
}

// Takes a byte of each of `from`, and gives one to each of `to`.
void move_bytes(Wire& wire, Collective what, const std::vector<int>& from, const std::vector<int>& to) {
  std::byte byte{};
  std::vector<std::byte> room(from.size());
  std::vector<Incoming> in;
  std::vector<Outgoing> out;
  for (std::size_t i = 0; i < from.size(); ++i) in.push_back({from[i], {&room[i], 1}});
  for (const int peer : to) out.push_back({peer, {&byte, 1}});
  wire.exchange({.collective = what, .elements = 1}, out, in);
}

TEST(StreamWire, AWaitThatLastsIsToldOnceByTheLowestOfANode) {
  const std::string said = said_of(2, [](int rank, Wire& wire) {
    if (rank < 2) move_bytes(wire, Collective::step, {2}, {});
    if (rank == 2) move_bytes(wire, Collective::step, {}, {0, 1});
  });
  EXPECT_THAT(said,
              ::testing::MatchesRegex("lockstep: rank 0 has waited 20 ms for rank 2 \\([^\n]*\\) in step\\(1\\)\n"));
}

TEST(StreamWire, AWaitForAMessageIsToldByWhoeverWaits) {
  const std::string said = said_of(2, [](int rank, Wire& wire) {
    if (rank == 1) move_bytes(wire, Collective::recv, {2}, {});
    if (rank == 2) move_bytes(wire, Collective::send, {}, {1});
  });
  EXPECT_THAT(said, ::testing::MatchesRegex("lockstep: rank 1 has waited 20 ms for rank 2 \\([^\n]*\\) in recv"
                                            "\\([^\n]*\\)\n"));
}

// The lowest waits for something else, and is missed here.
TEST(StreamWire, WhoIsMissedDoesNotSpeakForItsNode) {
  std::atomic<int> arrived{0};
  const std::string said = said_of(0, [&](int rank, Wire& wire) {
    while (rank == 1 && arrived < 2) std::this_thread::sleep_for(1ms);
    if (rank == 1) move_bytes(wire, Collective::step, {0, 2, 3}, {});
    if (rank != 1) move_bytes(wire, Collective::step, {}, {1});
    ++arrived;
  });
  EXPECT_THAT(said, ::testing::MatchesRegex("lockstep: rank 1 has waited 20 ms for rank 0 \\([^\n]*: seat 0\\) in "
                                            "step\\(1\\); others that have arrived: 2 to 3\nasked: seat 0\n"));
}

// What was sent before a rank left still arrives; who wants more learns that it has left.
TEST(StreamWire, WhoLeavesOwesNothingThatItHasSent) {
  const int port = next_port();
  const auto errors = meet({place_of(0, 2, port), place_of(1, 2, port)}, [](int rank, Mesh mesh) {
    StreamWire wire(std::move(mesh), {.rank = rank, .timeout = 20'000ms});
    std::vector<std::byte> bytes(100'000, std::byte(7));
    const Outgoing out{0, bytes};
    if (rank == 1) return wire.exchange({.collective = Collective::step}, {&out, 1}, {});
    std::this_thread::sleep_for(50ms);
    std::vector<std::byte> got(bytes.size());
    const Incoming in{1, got};
    wire.exchange({.collective = Collective::step}, {}, {&in, 1});
    EXPECT_EQ(got, bytes);
    wire.exchange({.collective = Collective::step}, {}, {&in, 1});
  });
  EXPECT_THAT(errors, ::testing::ElementsAre(HasSubstr("rank 1: left the group while rank 0 waited for it"), ""));
}

}  // namespace
}  // namespace lockstep::comm
