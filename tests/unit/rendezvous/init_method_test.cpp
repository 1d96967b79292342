#include "lockstep/rendezvous/init_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"
#include "tests/unit/rendezvous/variables.h"

namespace lockstep::rendezvous {
namespace {

using lockstep::testing::usage_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

Place place_told(const InitMethod& method, const Variables& variables = {}) {
  return place_by(method, reader_of(variables));
}

std::string refused(const InitMethod& method, const Variables& variables = {}) {
  return usage_error([&] { (void)place_told(method, variables); });
}

std::string refused_url(const std::string& url) { return refused({.url = url, .rank = 0, .world_size = 2}); }

TEST(InitMethod, TcpNamesHostAndPort) {
  const Place place =
      place_told({.url = "tcp://node0:29500", .rank = 1, .world_size = 4}, {{"GLOO_SOCKET_IFNAME", "eth1"}});
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world_size, 4);
  EXPECT_EQ(place.master_addr, "node0");
  EXPECT_EQ(place.master_port, 29500);
  EXPECT_EQ(place.socket_interface, "eth1");
  EXPECT_EQ(place.launcher, "hand");
  EXPECT_FALSE(place.nodes_known);
}

TEST(InitMethod, AnIpv6HostStandsInBrackets) {
  EXPECT_EQ(place_told({.url = "tcp://[::1]:29500", .rank = 0, .world_size = 2}).master_addr, "[::1]");
  EXPECT_EQ(refused_url("tcp://::1:29500"),
            "init: init_method 'tcp://::1:29500': names no host; expected tcp://host:port, an IPv6 one in brackets");
  EXPECT_THAT(refused_url("tcp://fe80:1:29500"), HasSubstr("an IPv6 address stands in brackets, as tcp://[::1]:29500"));
  EXPECT_THAT(refused_url("tcp://[::1:29500"), HasSubstr("the bracket of its host has no end"));
  EXPECT_THAT(refused_url("tcp://[::1]"), HasSubstr("names no port"));
}

TEST(InitMethod, AFileIsNamedFromTheRoot) {
  const Place place = place_told({.url = "file:///tmp/meeting", .rank = 0, .world_size = 2});
  EXPECT_EQ(place.meeting_file, "/tmp/meeting");
  EXPECT_FALSE(place.nodes_known);
  EXPECT_THAT(refused_url("file://meeting"), HasSubstr("its path must begin at the root, as file:///"));
  EXPECT_THAT(refused_url("file:///tmp/"), HasSubstr("names a folder"));
}

TEST(InitMethod, WhatIsNoneIsToldInALine) {
  EXPECT_EQ(refused_url("tpc://node0:1"),
            "init: unknown init_method 'tpc://node0:1': did you mean tcp://? (one of env://, tcp://host:port, "
            "file:///path)");
  EXPECT_THAT(refused_url("zeus"), AllOf(HasSubstr("unknown init_method 'zeus'"), HasSubstr("(one of env://")));
  EXPECT_THAT(refused_url(""), HasSubstr("unknown init_method ''"));
  EXPECT_THAT(refused_url("tcp:node0:1"), HasSubstr("'://' belongs behind 'tcp'"));
  EXPECT_THAT(refused_url("env://node0"), HasSubstr("nothing belongs behind env://"));
  EXPECT_THAT(refused_url("tcp://node0:1?rank=0"), HasSubstr("takes nothing behind '?'"));
  EXPECT_THAT(refused_url("tcp://node0"), HasSubstr("'tcp://node0': names no port"));
  EXPECT_THAT(refused_url("tcp://node0:"), HasSubstr("names no port"));
  for (const char* port : {"0", "65536", "-1", "1x", "99999999999"})
    EXPECT_THAT(refused_url(std::string("tcp://node0:") + port),
                HasSubstr("port '" + std::string(port) + "' is not a number from 1 to 65535"));
}

TEST(InitMethod, RankAndWorldSizeAreAskedFor) {
  const std::string tcp = "tcp://node0:29500";
  EXPECT_EQ(
      refused({.url = tcp}),
      "init: init_method 'tcp://node0:29500': needs rank and world_size beside it; not given: rank and world_size");
  EXPECT_THAT(refused({.url = tcp, .rank = 0}), HasSubstr("not given: world_size"));
  EXPECT_THAT(refused({.url = "file:///tmp/m", .world_size = 2}), HasSubstr("not given: rank"));
  EXPECT_EQ(refused({.url = tcp, .rank = 2, .world_size = 2}),
            "init: rank 2 is none of the ranks 0 to 1 of world_size 2");
  EXPECT_THAT(refused({.url = tcp, .rank = -2, .world_size = 2}), HasSubstr("rank -2 is none of the ranks 0 to 1"));
  EXPECT_THAT(refused({.url = tcp, .rank = -2}), HasSubstr("rank -2 is not a number from 0"));
  EXPECT_THAT(refused({.url = tcp, .rank = 0, .world_size = 0}), HasSubstr("world_size 0 is not a number from 1"));
  EXPECT_THAT(refused({.url = tcp, .rank = 0, .world_size = 5000}), HasSubstr("world_size 5000; at most 4096"));
}

TEST(InitMethod, AWorldOfOneMeetsNobody) {
  for (const char* url : {"tcp://node0:29500", "file:///tmp/meeting"}) {
    const Place place = place_told({.url = url, .rank = 0, .world_size = 1});
    EXPECT_EQ(place.launcher, "alone");
    EXPECT_TRUE(place.nodes_known);
  }
}

const Variables kLaunched = {
    {"RANK", "1"},       {"WORLD_SIZE", "4"},          {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};

TEST(InitMethod, EnvIsWhatTheLauncherSays) {
  const Place place = place_told({}, kLaunched);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_TRUE(place.nodes_known);
  EXPECT_EQ(place_told({}).launcher, "alone");
}

TEST(InitMethod, NumbersBesideEnvTakeThePlaceOfTheVariables) {
  const Place launched = place_told({.rank = 0, .world_size = 2}, with(kLaunched, {{"LOCAL_RANK", "0"}}));
  EXPECT_EQ(launched.rank, 0);
  EXPECT_EQ(launched.world_size, 2);
  EXPECT_TRUE(launched.nodes_known);
  const Variables meeting = {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29501"}};
  const Place by_hand = place_told({.rank = 1, .world_size = 2}, meeting);
  EXPECT_EQ(by_hand.rank, 1);
  EXPECT_EQ(by_hand.master_addr, "node0");
  EXPECT_EQ(by_hand.master_port, 29501);
  EXPECT_FALSE(by_hand.nodes_known);
  EXPECT_EQ(place_told({.rank = 1}, with(meeting, {{"WORLD_SIZE", "3"}})).world_size, 3);
}

TEST(InitMethod, WhatIsMissingBesideEnvIsNamed) {
  EXPECT_THAT(refused({.rank = 0}), HasSubstr("no world_size, and WORLD_SIZE is not set"));
  EXPECT_THAT(refused({.world_size = 2}), HasSubstr("no rank, and RANK is not set"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(refused({.rank = 0, .world_size = 2}, {{"MASTER_ADDR", "node0"}}), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(refused({.rank = 3}, {{"WORLD_SIZE", "2"}}), HasSubstr("RANK=3 is not a number from 0 to 1"));
}

TEST(Backend, AreSevenAndTheOthersAreTold) {
  for (const Backend backend :
       {Backend::automatic, Backend::shm, Backend::tcp, Backend::mpi, Backend::gloo, Backend::nccl, Backend::ipc})
    EXPECT_EQ(parse_backend(to_string(backend)), backend);
  EXPECT_EQ(parse_backend("hierarchical"), Backend::automatic) << "which it is over several nodes";
  EXPECT_EQ(usage_error([] { (void)parse_backend("tpc"); }),
            "init: unknown backend 'tpc': did you mean 'tcp'? (one of auto, hierarchical, shm, tcp, mpi, gloo, nccl, "
            "ipc)");
}

TEST(Backend, ShmIsForOneNode) {
  EXPECT_EQ(refused({.backend = Backend::shm}, kLaunched),
            "init: backend 'shm' is for ranks of one node, and ranks 1 and 2 are on different ones");
  EXPECT_EQ(refused({.backend = Backend::shm}, with(kLaunched, {{"RANK", "3"}, {"GROUP_RANK", "1"}})),
            "init: backend 'shm' is for ranks of one node, and ranks 3 and 0 are on different ones");
  EXPECT_EQ(place_told({.backend = Backend::shm}, with(kLaunched, {{"WORLD_SIZE", "2"}})).world_size, 2);
  EXPECT_EQ(refused({.backend = Backend::ipc}, kLaunched),
            "init: backend 'ipc' is for ranks of one node, and ranks 1 and 2 are on different ones");
}

TEST(Backend, MpiIsForRanksOfMpirun) {
  EXPECT_THAT(refused({.backend = Backend::mpi}), HasSubstr("this one was started alone"));
  EXPECT_THAT(refused({.backend = Backend::mpi}, with(kLaunched, {{"WORLD_SIZE", "2"}})),
              HasSubstr("by torchrun, which restarts ranks, and MPI does not survive the loss of one"));
  EXPECT_THAT(refused({.url = "tcp://node0:29500", .rank = 0, .world_size = 2, .backend = Backend::mpi}),
              HasSubstr("this one was started by hand"));
  const Place place = place_told({.backend = Backend::mpi}, {{"PMI_RANK", "1"},
                                                             {"PMI_SIZE", "2"},
                                                             {"MPI_LOCALRANKID", "1"},
                                                             {"MPI_LOCALNRANKS", "2"},
                                                             {"MASTER_ADDR", "node0"},
                                                             {"MASTER_PORT", "29500"}});
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.master_port, 29500);
}

TEST(Backend, TcpAndGlooAskForAMeetingPointOnOneNodeToo) {
  for (const Backend backend : {Backend::tcp, Backend::gloo}) {
    const Place place = place_told({.backend = backend}, with(kLaunched, {{"WORLD_SIZE", "2"}}));
    EXPECT_EQ(place.master_port, 29500);
    EXPECT_EQ(place.meeting_key, "none 29500");
  }
  EXPECT_EQ(place_told({}, with(kLaunched, {{"WORLD_SIZE", "2"}})).master_port, 0);
}

}  // namespace
}  // namespace lockstep::rendezvous
