// How ranks connect their Gloo, by the connections that they have already.

#include "lockstep/comm/network/gloo_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/own_address.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kAddress = "127.0.0.9";

std::pair<base::UniqueFd, base::UniqueFd> connected() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

// Of ranks that have met, by rank.
std::vector<Mesh> meshes_of(std::size_t ranks) {
  std::vector<Mesh> meshes(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Mesh& mesh = meshes[rank];
    mesh.own = rendezvous::resolve("test", kAddress, 1);
    mesh.own.set_port(0);
    mesh.peers.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer) mesh.peers[peer].rank = int(peer);
    for (std::size_t peer = 0; peer < rank; ++peer) {
      MeshPeer& there = meshes[peer].peers[rank];
      MeshPeer& here = mesh.peers[peer];
      std::tie(here.data, there.data) = connected();
      std::tie(here.news, there.news) = connected();
    }
  }
  return meshes;
}

// At which addresses this process listens.
std::vector<std::string> addresses_listened_at() {
  std::vector<int> open_now;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open_now.push_back(std::stoi(entry.path().filename().string()));
  std::vector<std::string> found;
  for (const int fd : open_now) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    const rendezvous::SocketAddress address = rendezvous::own_end(fd);
    if (address.length > 0) found.push_back(rendezvous::host_text(address));
  }
  return found;
}

// What a rank that connects is told.
std::string told_by_gloo(Mesh& mesh) {
  try {
    (void)gloo_streams(mesh, 400ms, [] {});
  } catch (const Error& error) {
    return error.what();
  }
  return "it is connected";
}

// Others still connect to a rank that has nothing to do and ends at once.
TEST(GlooStreams, AreConnectedOnAllRanksBeforeOneMayGo) {
  for (int round = 0; round < 10; ++round) {
    std::vector<Mesh> meshes = meshes_of(4);
    std::vector<std::string> told(meshes.size());
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < meshes.size(); ++rank)
      ranks.emplace_back([&, rank] {
        try {
          gloo_streams(meshes[rank], 20s, [] {}).reset();
        } catch (const Error& error) {
          told[rank] = error.what();
        }
      });
    for (std::thread& rank : ranks) rank.join();
    ASSERT_THAT(told, ::testing::Each("")) << "round " << round;
  }
}

TEST(GlooStreams, ConnectRanksAtTheirAddressAlone) {
  constexpr std::size_t kSize = 300'001;
  std::vector<Mesh> meshes = meshes_of(2);
  std::array<std::unique_ptr<Streams>, 2> streams;
  std::vector<std::thread> ranks;
  for (const std::size_t rank : {0, 1})
    ranks.emplace_back([&, rank] { streams[rank] = gloo_streams(meshes[rank], 20s, [] {}); });
  for (std::thread& rank : ranks) rank.join();
  ASSERT_TRUE(streams[0] && streams[1]);
  EXPECT_THAT(addresses_listened_at(), ::testing::AllOf(::testing::SizeIs(2), ::testing::Each(kAddress)));

  // Both ways at once.
  std::array<std::vector<std::byte>, 2> sent, came;
  std::array<std::size_t, 2> out{}, in{};
  for (const std::size_t rank : {0, 1}) {
    came[rank].resize(kSize);
    for (std::size_t i = 0; i < kSize; ++i) sent[rank].push_back(std::byte((i * 7 + rank) % 251));
  }
  const auto end = std::chrono::steady_clock::now() + 20s;
  while ((in[0] < kSize || in[1] < kSize) && std::chrono::steady_clock::now() < end)
    for (const std::size_t rank : {0, 1}) {
      const int peer = 1 - int(rank);
      const iovec rest{.iov_base = sent[rank].data() + out[rank], .iov_len = kSize - out[rank]};
      const iovec room{.iov_base = came[rank].data() + in[rank], .iov_len = kSize - in[rank]};
      if (rest.iov_len > 0) out[rank] += streams[rank]->send(peer, {&rest, 1}).bytes;
      if (room.iov_len > 0) in[rank] += streams[rank]->receive(peer, {&room, 1}).bytes;
    }
  EXPECT_TRUE(came[0] == sent[1]);
  EXPECT_TRUE(came[1] == sent[0]);
}

TEST(GlooStreams, ThoseWhoDoNotComeAreNamed) {
  std::vector<Mesh> meshes = meshes_of(3);
  EXPECT_THAT(told_by_gloo(meshes[0]), HasSubstr("rank 1, rank 2 did not tell where its Gloo listens within 400 ms"));
}

TEST(GlooStreams, WhoHasGoneIsNamed) {
  std::vector<Mesh> meshes = meshes_of(2);
  meshes[1] = {};
  EXPECT_THAT(told_by_gloo(meshes[0]), HasSubstr("rank 1 went away while the ranks' Gloo was being connected"));
}

volatile std::sig_atomic_t signals_heard = 0;

// It is blocked in Gloo's threads, which are made in this one.
TEST(GlooStreams, ASignalIsHeardWhileItWaits) {
  std::vector<Mesh> meshes = meshes_of(2);
  const auto before = std::signal(SIGUSR1, [](int) { signals_heard = 1; });
  const auto look = [] {
    if (signals_heard != 0) throw GroupAborted({.rank = 5, .cause = "it was heard"});
    raise(SIGUSR1);
  };
  EXPECT_THROW((void)gloo_streams(meshes[0], 3s, look), GroupAborted);
  std::signal(SIGUSR1, before);
}

TEST(GlooStreams, AFailureOfTheNodeEndsTheWait) {
  std::vector<Mesh> meshes = meshes_of(2);
  const auto failed = [] { throw GroupAborted({.rank = 5, .cause = "the disk is full"}); };
  EXPECT_THROW((void)gloo_streams(meshes[0], 20s, failed), GroupAborted);
}

}  // namespace
}  // namespace lockstep::comm
