// What ranks that meet over TCP are told where they do not, and what a stranger is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/network/meeting.h"
#include "lockstep/comm/network/tcp_mesh.h"
#include "tests/support/stranger.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
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
  EXPECT_THAT(told, AllOf(StartsWith("group: rank 0 is not at MASTER_ADDR 127."),
                          EndsWith(", MASTER_PORT 29400: rank 0 at this port is of another job than 'a guess'")));
}

// In the memory of this process.
class StoreOfOneKey final : public Meeting {
 public:
  void publish(const std::string&, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    value_ = value;
  }
  std::optional<std::string> look_up(const std::string&) override {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void withdraw(const std::string&) override {
    const std::lock_guard lock(mutex_);
    value_.reset();
  }
  bool outlives_attempts() const override { return true; }
  std::string name() const override { return "the test's store"; }

 private:
  std::mutex mutex_;
  std::optional<std::string> value_;
};

MeshPlace through(const std::shared_ptr<Meeting>& store, int rank, int port, const std::string& key) {
  MeshPlace place = one_of_two(rank, port, key, 20'000ms);
  place.meeting = store;
  return place;
}

// What rank 0 writes into it, which takes a while.
std::string entrance_in(Meeting& store) {
  std::optional<std::string> told;
  for (int looks = 0; looks < 2'000 && !told; ++looks) {
    std::this_thread::sleep_for(5ms);
    told = store.look_up("");
  }
  return told.value_or("");
}

// A port that a dead rank 0 had may be another job's by now.
TEST(MeshRefusals, WhoIsSentToAnotherJobByItsStoreLooksAgain) {
  const auto others = std::make_shared<StoreOfOneKey>(), store = std::make_shared<StoreOfOneKey>();
  std::string other, one;
  std::thread other_zero([&] { other = end_of_meeting(through(others, 0, 29'402, "another job")); });
  store->publish("", entrance_in(*others));
  std::thread rank_one([&] { one = end_of_meeting(through(store, 1, 29'402, "the job")); });
  std::this_thread::sleep_for(300ms);  // in which it is told
  EXPECT_EQ(end_of_meeting(through(store, 0, 29'402, "the job")), "");
  rank_one.join();
  EXPECT_EQ(one, "");
  EXPECT_EQ(end_of_meeting(through(others, 1, 29'402, "another job")), "");
  other_zero.join();
  EXPECT_EQ(other, "");
}

constexpr const char* kBanner = "SSH-2.0-somebody\r\n";

// Or any other program's, which says something else than a rank, or nothing.
TEST(MeshRefusals, WhoIsSentToAnotherProgramByItsStoreLooksAgain) {
  for (const char* says : {kBanner, ""}) {
    const auto store = std::make_shared<StoreOfOneKey>();
    const MeshPlace zero = through(store, 0, 29'403, "the job"), one = through(store, 1, 29'403, "the job");
    const lockstep::testing::Stranger stranger(zero.host, 0, says);
    store->publish("", stranger.address() + " of-a-dead-one");
    std::string said;
    std::thread rank_one([&] { said = end_of_meeting(one); });
    std::this_thread::sleep_for(300ms);  // in which it comes there
    EXPECT_EQ(end_of_meeting(zero), "") << says;
    rank_one.join();
    EXPECT_EQ(said, "") << says;
  }
}

TEST(MeshRefusals, ARankZeroWhosePlaceAnotherProgramHasIsNamed) {
  MeshPlace place = one_of_two(1, 29'404, "the key", 20'000ms);
  const lockstep::testing::Stranger stranger(place.host, place.port, kBanner);
  EXPECT_EQ(end_of_meeting(place),
            "group: rank 0 is not at MASTER_ADDR " + place.host + ", MASTER_PORT 29404: somebody else listens there");
  place.timeout = 1'000ms;
  place.meeting = std::make_shared<StoreOfOneKey>();
  place.meeting->publish("", stranger.address() + " of-a-dead-one");
  EXPECT_EQ(end_of_meeting(place), "group: rank 0 was not to be reached within 1 s: the test's store has " +
                                       stranger.address() + " for its address, and somebody else listens there");
}

// The living one has not come in time.
TEST(MeshRefusals, ARankZeroWhosePlaceAnotherJobHasIsNamed) {
  const auto others = std::make_shared<StoreOfOneKey>(), store = std::make_shared<StoreOfOneKey>();
  std::string other;
  std::thread other_zero([&] { other = end_of_meeting(through(others, 0, 29'405, "another job")); });
  const std::string left = entrance_in(*others);
  store->publish("", left);
  MeshPlace place = through(store, 1, 29'405, "the job");
  place.timeout = 1'000ms;
  EXPECT_THAT(end_of_meeting(place),
              AllOf(StartsWith("group: rank 0 was not to be reached within 1 s: the test's store has " +
                               left.substr(0, left.find(' ')) + " for its address, and rank 0 at this port is of "),
                    EndsWith(" the job'")));
  EXPECT_EQ(end_of_meeting(through(others, 1, 29'405, "another job")), "");
  other_zero.join();
  EXPECT_EQ(other, "");
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
