// What a rank makes of the news of several peers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/stream_wire.h"
#include "lockstep/comm/network/words.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

void send_news(int fd, const Failure& failure) {
  const News news = news_of(failure);
  ASSERT_EQ(send(fd, &news, sizeof news, MSG_NOSIGNAL), ssize_t(sizeof news));
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

}  // namespace
}  // namespace lockstep::comm
