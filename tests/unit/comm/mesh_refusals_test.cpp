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
  std::string name() const override { return "the test's store"; }

 private:
  std::mutex mutex_;
  std::optional<std::string> value_;
};

// A port that a dead rank 0 had may be another job's by now.
TEST(MeshRefusals, WhoIsSentToAnotherJobByItsStoreLooksAgain) {
  const auto start = [](int rank, const std::string& key, const std::shared_ptr<Meeting>& store) {
    MeshPlace place = one_of_two(rank, 29'402, key, 20'000ms);
    place.meeting = store;
    return place;
  };
  const auto others = std::make_shared<StoreOfOneKey>(), store = std::make_shared<StoreOfOneKey>();
  std::string other, one;
  std::thread other_zero([&] { other = end_of_meeting(start(0, "another job", others)); });
  std::optional<std::string> left;
  for (int looks = 0; looks < 2'000 && !left; ++looks) {
    std::this_thread::sleep_for(5ms);
    left = others->look_up("");
  }
  store->publish("", left.value_or(""));
  std::thread rank_one([&] { one = end_of_meeting(start(1, "the job", store)); });
  std::this_thread::sleep_for(300ms);  // in which it is told
  EXPECT_EQ(end_of_meeting(start(0, "the job", store)), "");
  rank_one.join();
  EXPECT_EQ(one, "");
  EXPECT_EQ(end_of_meeting(start(1, "another job", others)), "");
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
