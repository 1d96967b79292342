// What ranks that meet over TCP are told where they do not, and what a stranger is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/tcp_mesh.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::StartsWith;

// One of two, at an address of this process alone.
MeshPlace one_of_two(int rank, int port, const std::string& key, std::chrono::milliseconds timeout) {
  const std::string host = "127." + std::to_string(2 + getpid() / 62'500 % 250) + "." +
                           std::to_string(getpid() / 250 % 250) + "." + std::to_string(1 + getpid() % 250);
  return {.rank = rank, .world = 2, .host = host, .port = port, .key = key, .timeout = timeout};
}

std::string end_of_meeting(const MeshPlace& place) {
  try {
    make_mesh(place);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Else he would come again with it.
TEST(MeshRefusals, WhoBringsAnotherKeyIsNotToldTheRightOne) {
  std::string told;
  std::thread stranger([&] { told = end_of_meeting(one_of_two(1, 29'400, "a guess", 20'000ms)); });
  EXPECT_THAT(end_of_meeting(one_of_two(0, 29'400, "the key", 2'000ms)), EndsWith(" within 2 s: 1"));
  stranger.join();
  EXPECT_EQ(told, "group: rank 0 at this port is of another job than 'a guess'");
}

// A part of a group is told of by the numbers of the whole.
TEST(MeshRefusals, WhoDoesNotComeIsNamedAsTheWholeDoes) {
  MeshPlace place = one_of_two(0, 29'401, "the key", 1'000ms);
  place.names = {5, 7};
  EXPECT_THAT(end_of_meeting(place), EndsWith(" within 1 s: 7"));
  place.rank = 1;
  place.timeout = 100ms;
  EXPECT_THAT(end_of_meeting(place), StartsWith("group: rank 5 was not to be reached "));
}

}  // namespace
}  // namespace lockstep::comm
