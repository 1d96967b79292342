// Where agents meet whose endpoint's name means loopback on their machine, from given names and interfaces.

#include "lockstep/launch/nodes/meeting_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Interfaces = std::vector<rendezvous::Interface>;

rendezvous::SocketAddress address(const std::string& figures, int port = 0) {
  return rendezvous::resolve("test", figures, port);
}

rendezvous::Interface has(const std::string& name, const std::string& figures) {
  return {.name = name, .address = address(figures)};
}

const Interfaces kLoopback{has("lo", "127.0.0.1")};
const Interfaces kOneCard{has("lo", "127.0.0.1"), has("eth0", "10.0.0.7")};
const Interfaces kTwoCards{has("lo", "127.0.0.1"), has("eth0", "10.0.0.7"), has("ib0", "10.1.0.7")};

struct Question {
  std::string host = "node0";
  std::string resolved = "127.0.1.1";
  std::string machine = "node0";
  Interfaces interfaces = kOneCard;
  std::string local_addr = {};
  std::string interface = {};
  std::optional<bool> is_host = {};
  int fixed_rank = -1;
};

// Or the refusal.
std::string place_of(const Question& asked) {
  NodesSettings settings{.host = asked.host, .port = 29'400, .node_rank = asked.fixed_rank};
  settings.limits.fixed_ranks = asked.fixed_rank >= 0;
  settings.is_host = asked.is_host;
  settings.local_addr = asked.local_addr;
  const rendezvous::SocketAddress local =
      asked.local_addr.empty() ? rendezvous::SocketAddress{} : address(asked.local_addr);
  try {
    return to_text(meeting_place(
        settings, address(asked.resolved, 29'400), local,
        {.host_name = asked.machine, .interface = asked.interface, .interfaces = [&] { return asked.interfaces; }}));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(MeetingPlace, IsWhatTheNameMeansWhereThatIsNotLoopback) {
  EXPECT_EQ(place_of({.resolved = "10.0.0.1", .interfaces = kTwoCards}), "10.0.0.1:29400");
  EXPECT_EQ(place_of({.resolved = "10.0.0.1", .local_addr = "10.0.0.7"}), "10.0.0.1:29400");
  for (const char* host : {"localhost", "127.0.0.1"})
    EXPECT_EQ(place_of({.host = host, .resolved = "127.0.0.1"}), "127.0.0.1:29400");
}

TEST(MeetingPlace, IsTheMachinesOwnWhereTheNameIs) {
  EXPECT_EQ(place_of({}), "10.0.0.7:29400");
  EXPECT_EQ(place_of({.host = "Node0.cluster.local"}), "10.0.0.7:29400");
  EXPECT_EQ(place_of({.machine = "node0.cluster.local"}), "10.0.0.7:29400");
  EXPECT_EQ(place_of({.interfaces = kTwoCards, .interface = "ib0"}), "10.1.0.7:29400");
  EXPECT_EQ(place_of({.interfaces = kTwoCards, .local_addr = "10.1.0.7"}), "10.1.0.7:29400");
  // Asked for: all agents are here.
  EXPECT_EQ(place_of({.interface = "lo"}), "127.0.0.1:29400");
  EXPECT_EQ(place_of({.local_addr = "127.0.0.1"}), "127.0.0.1:29400");
}

// As on machines that have one /etc/hosts: each would host, and nobody would come.
TEST(MeetingPlace, IsNotAnotherMachinesName) {
  const std::string refusal =
      "run: --rdzv-endpoint node0 is 127.0.1.1 here (see /etc/hosts), but this machine is node1: let the name mean the "
      "hosting node's address here, or give the agent that is to host --rdzv-conf is_host=1";
  EXPECT_EQ(place_of({.machine = "node1"}), refusal);
  EXPECT_EQ(place_of({.machine = "node1", .local_addr = "10.0.0.7"}), refusal);
  EXPECT_EQ(place_of({.machine = "node1", .interface = "eth0"}), refusal);
  EXPECT_EQ(place_of({.machine = "node1", .is_host = false}), refusal);
  EXPECT_EQ(place_of({.machine = "node1", .fixed_rank = 1}), refusal);
  EXPECT_THAT(place_of({.host = "node0.here", .machine = "node0.elsewhere"}), HasSubstr("this machine is node0.else"));
  // Who is said to host does.
  EXPECT_EQ(place_of({.machine = "node1", .is_host = true}), "10.0.0.7:29400");
  EXPECT_EQ(place_of({.machine = "node1", .fixed_rank = 0}), "10.0.0.7:29400");
}

TEST(MeetingPlace, IsNotGuessed) {
  EXPECT_EQ(place_of({.interfaces = kTwoCards}),
            "run: --rdzv-endpoint node0 is 127.0.1.1 here (see /etc/hosts), which no other node reaches, and this "
            "machine has several addresses (eth0 10.0.0.7, ib0 10.1.0.7): give --local-addr ADDRESS, or name the "
            "interface by LOCKSTEP_SOCKET_IFNAME");
  EXPECT_EQ(place_of({.interfaces = kLoopback}),
            "run: --rdzv-endpoint node0 is 127.0.1.1 here (see /etc/hosts), which no other node reaches, and this "
            "machine has no other address: give localhost where all agents are on one machine");
  EXPECT_THAT(place_of({.interface = "eth9"}), HasSubstr("eth9: no interface here has this name"));
}

TEST(MeetingPlace, IsNotReachedFromLoopback) {
  EXPECT_THAT(place_of({.resolved = "10.0.0.1", .local_addr = "127.0.0.1"}),
              StartsWith("run: --local-addr 127.0.0.1 is this machine's alone, but --rdzv-endpoint node0 is not: "));
}

// The address of a hosting agent may move to the machine of one that it has not let in yet.
TEST(MeetingPlace, IsHostedAtAgainOnlyWhereNobodyElseMayHost) {
  const rendezvous::SocketAddress here = address("10.0.0.7", 29'400), there = address("10.0.0.1", 29'400);
  const RefusedPlace taken{.address = here, .error = EADDRINUSE}, not_here{.address = here, .error = EADDRNOTAVAIL};
  for (const bool reached : {false, true}) {
    EXPECT_TRUE(tries_to_host({}, reached, here));
    EXPECT_TRUE(tries_to_host(taken, reached, here));
    EXPECT_FALSE(tries_to_host(taken, reached, there)) << "the name was moved";
    EXPECT_FALSE(tries_to_host(not_here, reached, there));
    EXPECT_FALSE(tries_to_host(not_here, reached, address("10.0.0.7", 29'401)));
  }
  EXPECT_TRUE(tries_to_host(not_here, /*reached=*/false, here)) << "the address came late";
  EXPECT_FALSE(tries_to_host(not_here, /*reached=*/true, here)) << "it came from somebody";
}

// Listing the interfaces is left where nobody has to know.
TEST(MeetingPlace, AsksForTheInterfacesOnlyWhereItMatters) {
  const auto never = [] { return ADD_FAILURE() << "asked", Interfaces(); };
  const NodesSettings settings{.host = "node0", .port = 1};
  meeting_place(settings, address("10.0.0.1"), {}, {.host_name = "node0", .interface = "", .interfaces = never});
  meeting_place(settings, address("127.0.1.1"), address("10.0.0.7"),
                {.host_name = "node0", .interface = "", .interfaces = never});
}

}  // namespace
}  // namespace lockstep::launch
