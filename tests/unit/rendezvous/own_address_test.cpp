// Which address a machine has for others, from given lists of interfaces.

#include "lockstep/rendezvous/own_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::HasSubstr;

SocketAddress address(const std::string& figures, int port = 0) { return resolve("test", figures, port); }

Interface has(const std::string& name, const std::string& figures) {
  return {.name = name, .address = address(figures)};
}

bool same(const SocketAddress& a, const SocketAddress& b) {
  return a.length == b.length && std::memcmp(&a.bytes, &b.bytes, a.length) == 0;
}

template <class Body>
std::string refusal_of(const Body& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const std::vector<Interface> kOneCard{has("eth0", "10.0.0.7"), has("eth0", "2001:db8::7")};
const std::vector<Interface> kTwoCards{has("eth0", "10.0.0.7"), has("docker0", "172.17.0.1")};

TEST(OwnAddress, ANameThatIsLoopbackHereIsTheMachinesOneAddress) {
  EXPECT_TRUE(same(reachable("group: MASTER_ADDR", "node0", address("127.0.1.1", 29'500), kOneCard),
                   address("10.0.0.7", 29'500)));
  EXPECT_TRUE(same(reachable("", "node0", address("::1", 29'500), {has("eth0", "2001:db8::7")}),
                   address("2001:db8::7", 29'500)));
}

TEST(OwnAddress, WhatResolvesToMoreOrMeansLoopbackStays) {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.3.4.5"})
    EXPECT_TRUE(same(reachable("", host, address("127.0.0.1", 29'500), kOneCard), address("127.0.0.1", 29'500)))
        << host;
  EXPECT_TRUE(same(reachable("", "[::1]", address("::1", 1), kOneCard), address("::1", 1)));
  EXPECT_TRUE(same(reachable("", "node0", address("10.0.0.9", 1), kTwoCards), address("10.0.0.9", 1)));
  EXPECT_TRUE(same(reachable("", "node0", address("127.0.1.1", 1), {}), address("127.0.1.1", 1)));
}

TEST(OwnAddress, OfSeveralNoneIsGuessed) {
  EXPECT_EQ(refusal_of([] { reachable("group: MASTER_ADDR", "node0", address("127.0.1.1"), kTwoCards); }),
            "group: MASTER_ADDR node0 is 127.0.1.1 here (see /etc/hosts), which no other machine reaches, and this "
            "machine has several addresses (eth0 10.0.0.7, docker0 172.17.0.1): name the interface by "
            "LOCKSTEP_SOCKET_IFNAME");
}

TEST(OwnAddress, IsThatOfTheInterfaceAskedFor) {
  EXPECT_TRUE(same(address_of("docker0", kTwoCards), address("172.17.0.1")));
  EXPECT_TRUE(same(reachable("", "node0", address("127.0.1.1", 5), kTwoCards, "docker0"), address("172.17.0.1", 5)));
  EXPECT_TRUE(same(address_of("eth0", {kOneCard[1], kOneCard[0]}), address("10.0.0.7")));
  EXPECT_EQ(refusal_of([] { address_of("eth1", kTwoCards); }),
            "LOCKSTEP_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) eth1: no interface here has this name and an address; "
            "there are: eth0 10.0.0.7, "
            "docker0 172.17.0.1");
  EXPECT_THAT(refusal_of([] { address_of("eth1", {}); }), HasSubstr("there are: none"));
}

// GLOO_SOCKET_IFNAME=lo is what people set for several nodes on one machine.
TEST(OwnAddress, LoopbackIsTakenWhereItIsAskedForOnly) {
  const std::vector<Interface> both{has("lo", "127.0.0.1"), has("eth0", "10.0.0.7")};
  EXPECT_TRUE(same(address_of("lo", both), address("127.0.0.1")));
  EXPECT_TRUE(same(reachable("", "node0", address("127.0.1.1", 5), both), address("10.0.0.7", 5)));
  EXPECT_TRUE(same(reachable("", "node0", address("127.0.1.1", 5), both, "lo"), address("127.0.0.1", 5)));
  EXPECT_TRUE(same(reachable("", "node0", address("127.0.1.1", 5), {both[0]}), address("127.0.1.1", 5)));
  EXPECT_TRUE(std::ranges::any_of(own_interfaces(), [](const Interface& one) { return one.address.is_loopback(); }));
}

}  // namespace
}  // namespace lockstep::rendezvous
