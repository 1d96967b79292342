// What a rank makes of the news of several peers, and what it knows of one that is late.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/comm/network/words.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

void send_words(int fd, const News& news) {
  ASSERT_EQ(send(fd, &news, sizeof news, MSG_NOSIGNAL), ssize_t(sizeof news));
}

void send_news(int fd, const Failure& failure) { send_words(fd, news_of(failure)); }

// What the wire tells the peer whose end this is; none: nothing for so long.
std::optional<News> told_at(const MeshPeer& peer) {
  std::array<std::byte, sizeof(News)> bytes{};
  pollfd polled{.fd = peer.news.get(), .events = POLLIN, .revents = 0};
  if (poll(&polled, 1, 5'000) != 1) return std::nullopt;
  if (recv(peer.news.get(), bytes.data(), bytes.size(), MSG_WAITALL) != ssize_t(bytes.size())) return std::nullopt;
  return words_in<News>(bytes);
}

TEST(StreamWire, WaitsForTheWordOfThoseWhoKnowMoreAThirtiethOfTheTimeout) {
  EXPECT_EQ(StreamWire::word_time(1s), StreamWire::kNewsTime);
  EXPECT_EQ(StreamWire::word_time(60s), 2s);
  EXPECT_EQ(StreamWire::word_time(300s), 10s);
  EXPECT_EQ(StreamWire::word_time(3600s), 10s);
}

// The node hears of the first as it comes, perhaps by another group's thread; what the wire throws must be the same.
TEST(StreamWire, OfSeveralPiecesOfNewsTheFirstCounts) {
  Mesh mesh;
  mesh.peers.resize(3);
  std::array<MeshPeer, 3> peers;  // their ends
  for (const std::size_t peer : {1, 2}) {
    MeshPeer& mine = mesh.peers[peer];
    mine.rank = int(peer);
    for (auto [here, there] : {std::pair(&mine.data, &peers[peer].data), std::pair(&mine.news, &peers[peer].news)}) {
      int ends[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      *here = base::UniqueFd(ends[0]);
      *there = base::UniqueFd(ends[1]);
    }
  }
  std::vector<std::string> told;
  const WireTies ties{.failed = [&](const Failure& failure) { told.push_back(failure.cause); }};
  StreamWire wire(std::move(mesh), {.rank = 0, .timeout = 20s, .ties = ties});
  send_news(peers[1].news.get(), {.rank = 1, .cause = "the disk is full"});
  wire.listen();
  EXPECT_THAT(told, ::testing::ElementsAre("the disk is full"));
  send_news(peers[2].news.get(), {.rank = 2, .cause = "rank 1 went away"});
  std::byte theirs[8];
  const Incoming in{1, theirs};
  try {
    wire.exchange({.collective = Collective::step}, {}, {&in, 1});
    ADD_FAILURE() << "the exchange ended without rank 1";
  } catch (const GroupAborted& error) {
    EXPECT_EQ(error.failure().rank, 1);
    EXPECT_EQ(error.failure().cause, "the disk is full");
  }
  EXPECT_THAT(told, ::testing::Each("the disk is full"));
}

struct FourRanks {
  Mesh mesh;                      // rank 0's
  std::array<MeshPeer, 4> peers;  // the others' ends
};

// Ranks 1 and 2 share a node.
FourRanks four_ranks() {
  FourRanks made;
  made.mesh.peers.resize(4);
  for (int peer = 0; peer < 4; ++peer) {
    MeshPeer &mine = made.mesh.peers[std::size_t(peer)], &theirs = made.peers[std::size_t(peer)];
    mine.rank = peer;
    mine.node = (peer + 1) / 2;
    mine.host = "h" + std::to_string(mine.node);
    if (peer == 0) continue;
    for (auto [here, there] : {std::pair(&mine.data, &theirs.data), std::pair(&mine.news, &theirs.news)}) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      *here = base::UniqueFd(ends[0]);
      *there = base::UniqueFd(ends[1]);
    }
  }
  return made;
}

// Rank 1 waits for rank 2, and that one for rank 3.
TEST(StreamWire, AtTheDeadlineItIsTheOneThatWaitsForNobody) {
  FourRanks ranks = four_ranks();
  std::thread others([&] {
    for (const int peer : {1, 2}) {
      const MeshPeer& end = ranks.peers[std::size_t(peer)];
      const std::optional<News> told = told_at(end);
      EXPECT_TRUE(told && told->kind == NewsKind::question && told->rank == 0) << "to rank " << peer;
      send_words(end.news.get(), answer_of(peer, {peer + 1}));
    }
    const std::optional<News> told = told_at(ranks.peers[3]);
    EXPECT_TRUE(told && told->kind == NewsKind::question);
  });
  StreamWire wire(std::move(ranks.mesh), {.rank = 0, .timeout = 200ms});
  std::byte theirs[8];
  const Incoming in{1, theirs};
  try {
    wire.exchange({.collective = Collective::step}, {}, {&in, 1});
    ADD_FAILURE() << "the exchange ended without rank 1";
  } catch (const GroupAborted& error) {
    EXPECT_EQ(error.failure().rank, 3);
    EXPECT_EQ(error.failure().cause,
              "rank 0 waited 200 ms for rank 1 (h1) in step(0); of all that are waited for rank 3 (h2) alone waits for "
              "nobody");
  }
  others.join();
}

// At the wire, and elsewhere.
TEST(StreamWire, WhoIsAskedSaysForWhomItWaits) {
  FourRanks ranks = four_ranks();
  StreamWire wire(std::move(ranks.mesh), {.rank = 0, .timeout = 20s});
  const News question{.rank = 2, .kind = NewsKind::question};
  wire.answer([] { return std::vector<int>{8}; });
  send_words(ranks.peers[2].news.get(), question);
  wire.listen();  // which has no answer
  wire.answer([] { return std::vector<int>{7, 5}; });
  wire.answer([] { return std::vector<int>{8}; });
  const std::optional<News> elsewhere = told_at(ranks.peers[2]);
  ASSERT_TRUE(elsewhere && elsewhere->kind == NewsKind::answer);
  EXPECT_EQ(elsewhere->rank, 0);
  EXPECT_THAT(awaited_in(*elsewhere), ::testing::ElementsAre(7, 5));

  send_words(ranks.peers[2].news.get(), question);
  std::optional<News> at_wire;
  std::thread others([&] {
    at_wire = told_at(ranks.peers[2]);
    send_news(ranks.peers[3].news.get(), {.rank = 3, .cause = "the disk is full"});
  });
  std::byte theirs[8];
  const Incoming in{1, theirs};
  EXPECT_THROW(wire.exchange({.collective = Collective::step}, {}, {&in, 1}), GroupAborted);
  others.join();
  ASSERT_TRUE(at_wire && at_wire->kind == NewsKind::answer);
  EXPECT_THAT(awaited_in(*at_wire), ::testing::ElementsAre(1));
}

// Two ranks on nodes of their own.
std::array<Mesh, 2> two_nodes() {
  std::array<Mesh, 2> both;
  for (Mesh& mesh : both) {
    mesh.peers.resize(2);
    for (int peer = 0; peer < 2; ++peer) {
      mesh.peers[std::size_t(peer)].rank = mesh.peers[std::size_t(peer)].node = peer;
      mesh.peers[std::size_t(peer)].host = "h" + std::to_string(peer);
    }
  }
  MeshPeer &one = both[0].peers[1], &zero = both[1].peers[0];
  for (auto [here, there] : {std::pair(&one.data, &zero.data), std::pair(&one.news, &zero.news)}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    *here = base::UniqueFd(ends[0]);
    *there = base::UniqueFd(ends[1]);
  }
  return both;
}

// What rank 0 says of its wait, and of the end of that, for rank 1, which has called this before, in step 12.
std::pair<std::string, std::string> said_of_a_wait(const std::vector<CollectiveNote>& calls) {
  std::array<Mesh, 2> meshes = two_nodes();
  StreamWire waits(std::move(meshes[0]), {.rank = 0, .timeout = 200ms, .ties = {.stall_warning = 20ms}});
  StreamWire is_late(std::move(meshes[1]),
                     {.rank = 1, .timeout = 20s, .ties = {.step = [] { return std::uint64_t(12); }}});
  std::byte theirs[8], mine[8] = {};
  const Outgoing out{0, mine};
  const Incoming in{1, theirs};
  for (const CollectiveNote& note : calls) {
    is_late.exchange(note, {&out, 1}, {});
    waits.exchange(note, {}, {&in, 1});
  }
  std::string cause;
  ::testing::internal::CaptureStderr();
  try {
    waits.exchange({.collective = Collective::step, .elements = 13}, {}, {&in, 1});
  } catch (const GroupAborted& error) {
    cause = error.failure().cause;
  }
  return {::testing::internal::GetCapturedStderr(), cause};
}

// No page of this node has its step.
TEST(StreamWire, OfALateRankOnAnotherNodeItTellsWhatThatSaidLast) {
  const CollectiveNote sums{.collective = Collective::all_reduce, .dtype = 6, .elements = 2};
  const CollectiveNote step{.collective = Collective::step, .elements = 12};
  const std::pair<std::vector<CollectiveNote>, std::string> cases[] = {
      {{}, "h1"},
      {{step, sums}, "h1: last heard of in all_reduce(2 x Float, op 0), step 12"},
      {{sums, step}, "h1: last heard of in step(12)"}};
  for (const auto& [calls, place] : cases) {
    const auto [warning, cause] = said_of_a_wait(calls);
    EXPECT_EQ(warning, "lockstep: rank 0 has waited 20 ms for rank 1 (" + place + ") in step(13)\n");
    EXPECT_EQ(cause, "rank 0 waited 200 ms for rank 1 (" + place + ") in step(13)");
  }
}

// The others of its node leave what is to be told of a wait to the lowest that is in one.
TEST(StreamWire, ARankTellsItsNodeWhileItWaitsForOthers) {
  std::array<Mesh, 2> meshes = two_nodes();
  int away = 0;
  std::vector<int> during;
  std::byte theirs[8], mine[8] = {};
  const Outgoing out{0, mine};
  const Incoming in{1, theirs};
  StreamWire gives(std::move(meshes[1]), {.rank = 1, .timeout = 20s});
  const auto note_and_give = [&] {
    during.push_back(away);
    if (during.size() == 1) gives.exchange({.collective = Collective::step}, {&out, 1}, {});
  };
  const WireTies ties{.check = note_and_give, .away = [&](int change) { away += change; }};
  StreamWire takes(std::move(meshes[0]), {.rank = 0, .timeout = 20s, .ties = ties});
  takes.exchange({.collective = Collective::step}, {}, {&in, 1});
  EXPECT_FALSE(during.empty());
  EXPECT_THAT(during, ::testing::Each(1));
  EXPECT_EQ(away, 0);
}

}  // namespace
}  // namespace lockstep::comm
