// What a member makes of the hosting agent's clock, against a stub whose clock is minutes off and that answers late.

#include "lockstep/launch/nodes/host_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/machine/machine.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

class HostLineTest : public ::testing::Test {
 protected:
  HostLineTest() {
    settings_.keep_alive = milliseconds(10);
    settings_.misses = 6'000;  // nobody is silent by chance
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    stub_ = base::UniqueFd(ends[0]);
    line_.emplace(loop_, settings_, "stub", rendezvous::Join{.host = "h"},
                  HostLine::Events{.message = [](const rendezvous::Message&) {},
                                   .waits = [](const std::string&) {},
                                   .refused = [](const std::string& why) { ADD_FAILURE() << why; },
                                   .lost =
                                       [this](const std::string& why, Parting) {
                                         if (!lost_) ADD_FAILURE() << why;
                                         lost_ = why;
                                       },
                                   .leased = [](Clock::time_point) {}});
    line_->use(base::UniqueFd(ends[1]), std::make_unique<PlainChannel>(ends[1]));
    say(rendezvous::Waiting{.reason = "first"});
  }

  void say(const rendezvous::Message& message) {
    const std::string bytes = to_frame(message);
    EXPECT_EQ(send(stub_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }

  // The next Ping; those that were sent before are passed over.
  rendezvous::Ping next_ping() {
    std::optional<rendezvous::Ping> ping;
    char bytes[4096];
    while (recv(stub_.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) received_.clear();
    loop_.run_until(
        [&] {
          const ssize_t got = recv(stub_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
          if (got > 0) received_.append(bytes, std::size_t(got));
          while (const auto message = rendezvous::take_message(received_, rendezvous::kLongestMessage))
            if (const auto* found = std::get_if<rendezvous::Ping>(&*message)) ping = *found;
          return ping.has_value();
        },
        Clock::now() + milliseconds(20'000));
    EXPECT_TRUE(ping);
    return ping.value_or(rendezvous::Ping{});
  }

  // Answers a Ping with a clock that is `ahead` seconds before ours, `there` after it was sent, and back later.
  void answer(double ahead, milliseconds there, milliseconds back) {
    const rendezvous::Ping ping = next_ping();
    loop_.run_until([] { return false; }, Clock::now() + there);
    const double wall = wall_clock() + ahead;
    loop_.run_until([] { return false; }, Clock::now() + back);
    const double known = line_->clock_error();
    say(rendezvous::Pong{.sent = ping.sent, .wall = wall, .answered = 1, .good_for = 60'000});
    loop_.turn(Clock::now() + milliseconds(20'000));
    EXPECT_LE(line_->clock_error(), known + 0.01) << "a worse answer is not taken";
  }

  // By how much what is made of the clock is wrong.
  double wrong_by(double ahead) const { return std::abs(line_->host_time(1'000) - (1'000 + ahead)); }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  NodesSettings settings_;
  base::UniqueFd stub_;
  std::string received_;
  std::optional<std::string> lost_;  // with a value where that may be
  std::optional<HostLine> line_;
};

constexpr double kMinutes = 300;

TEST_F(HostLineTest, KnowsNothingOfTheClockBeforeAnAnswer) { EXPECT_GT(line_->clock_error(), 1e6); }

TEST_F(HostLineTest, TakesAClockThatIsMinutesOffWithinItsError) {
  answer(kMinutes, milliseconds(0), milliseconds(0));
  EXPECT_LT(line_->clock_error(), 60);
  EXPECT_LE(wrong_by(kMinutes), line_->clock_error());
}

TEST_F(HostLineTest, AClockBehindToo) {
  answer(-kMinutes, milliseconds(0), milliseconds(0));
  EXPECT_LT(line_->clock_error(), 60);
  EXPECT_LE(wrong_by(-kMinutes), line_->clock_error());
}

// All of the delay on one side is the worst that the half of it can be wrong by.
TEST_F(HostLineTest, ADelayIsInTheError) {
  answer(kMinutes, milliseconds(0), milliseconds(100));
  EXPECT_GE(line_->clock_error(), 0.05);
  EXPECT_LE(wrong_by(kMinutes), line_->clock_error());
  EXPECT_GE(wrong_by(kMinutes), 0.03) << "the stub's delay is not there";
}

TEST_F(HostLineTest, AQuickerAnswerIsBetterAndASlowerOneLeavesIt) {
  answer(kMinutes, milliseconds(400), milliseconds(0));
  const double slow = line_->clock_error();
  EXPECT_GE(slow, 0.2);
  // However busy the machine is, one of many is quick.
  for (int i = 0; i < 100 && line_->clock_error() > slow / 2; ++i) answer(kMinutes, milliseconds(0), milliseconds(0));
  const double quick = line_->clock_error();
  EXPECT_LE(quick, slow / 2);
  answer(-kMinutes, milliseconds(0), milliseconds(int(quick * 4'000) + 100));
  EXPECT_LE(wrong_by(kMinutes), line_->clock_error()) << "the clock of an answer that was slower";
}

time_t seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

// As if the machine had slept, for this process; false: that cannot be made here.
bool sleep_seconds(int time) {
  constexpr int kNewTime = 0x80;  // CLONE_NEWTIME
  const time_t before = seconds_since_boot();
  if (unshare(CLONE_NEWUSER | kNewTime) != 0) return false;
  std::ofstream("/proc/self/timens_offsets") << "boottime " << time << " 0\n";
  const base::UniqueFd asleep(open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC));
  return asleep && setns(asleep.get(), kNewTime) == 0 && seconds_since_boot() >= before + time;
}

// The hosting agent has not slept, and has given this node up.
TEST_F(HostLineTest, TheLeaseIsOverWhereTheMachineHasSleptForLonger) {
  answer(0, milliseconds(0), milliseconds(0));
  constexpr int kNoWay = 77;
  const pid_t sleeper = fork();
  if (sleeper == 0) {
    lost_ = "";
    if (!sleep_seconds(90)) _exit(kNoWay);
    line_->keep_alive();
    _exit(lost_->starts_with("nothing was heard of it") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(sleeper, &status, 0), sleeper);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoWay) GTEST_SKIP() << "no namespace of times here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A member whose hosting agent is a listener of the test's.
class HostLineDoorTest : public ::testing::Test {
 protected:
  HostLineDoorTest() {
    settings_.misses = 60;
    rendezvous::Listening listening = rendezvous::listen_at(rendezvous::resolve("test", "127.0.0.1", 0));
    address_ = rendezvous::own_end(listening.fd.get());
    listener_ = std::move(listening.fd);
    line_.emplace(loop_, settings_, "stub", rendezvous::Join{.host = "h"},
                  HostLine::Events{.message = [](const rendezvous::Message&) {},
                                   .waits = [this](const std::string& why) { waits_ = why; },
                                   .refused =
                                       [this](const std::string& why) {
                                         if (!refused_) ADD_FAILURE() << why;
                                         refused_ = why;
                                       },
                                   .lost = [](const std::string& why, Parting) { ADD_FAILURE() << why; },
                                   .leased = [](Clock::time_point) {}});
  }
  void connect(std::function<rendezvous::Resolved()> look_up) {
    line_->connect({.look_up = std::move(look_up)}, [](int fd) { return std::make_unique<PlainChannel>(fd); });
  }
  // Who comes as `number` and all after him hear a word; those before are turned away.
  bool is_let_in_as(int number) {
    base::UniqueFd in;
    int came = 0;
    return loop_.run_until(
        [&] {
          base::UniqueFd fd = rendezvous::accept_at(listener_.get());
          if (fd && ++came >= number) {
            const std::string bytes = to_frame(rendezvous::Waiting{.reason = "in"});
            EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
            in = std::move(fd);
          }
          tick_ = loop_.at(Clock::now() + milliseconds(5), [] {});
          return line_->heard();
        },
        Clock::now() + milliseconds(30'000));
  }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  EventLoop::Handle tick_;
  NodesSettings settings_;
  rendezvous::SocketAddress address_;
  base::UniqueFd listener_;
  std::string waits_;
  std::optional<std::string> refused_;  // with a value where that may be
  std::optional<HostLine> line_;
};

// Ctrl-C, SIGTERM and the end of the leash are events of the loop.
TEST_F(HostLineDoorTest, TheLoopTurnsWhileNoNameServerAnswers) {
  std::promise<void> answers;
  connect([this, answer = answers.get_future().share()] {
    return answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready
               ? rendezvous::Resolved{.addresses = {address_}, .why = {}}
               : rendezvous::Resolved{.addresses = {}, .why = "the loop stood still"};
  });
  const EventLoop::Handle event = loop_.at(Clock::now() + milliseconds(20), [&] { answers.set_value(); });
  EXPECT_TRUE(is_let_in_as(1));
  EXPECT_EQ(waits_.find("stood still"), std::string::npos) << waits_;
}

TEST_F(HostLineDoorTest, ItsEndWaitsForNoNameServer) {
  std::promise<void> answers;
  const auto in_time = std::make_shared<std::promise<bool>>();
  std::future<bool> was_in_time = in_time->get_future();
  connect([in_time, answer = answers.get_future().share()] {
    in_time->set_value(answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
    return rendezvous::Resolved{};
  });
  loop_.turn(Clock::now());
  line_.reset();
  answers.set_value();
  EXPECT_TRUE(was_in_time.get());
}

TEST_F(HostLineDoorTest, ANameServerIsWaitedForNoLongerThanTheOthers) {
  settings_.limits.join_timeout = milliseconds(100);
  refused_ = "";
  std::promise<void> answers;
  connect([answer = answers.get_future().share()] {
    answer.wait_for(std::chrono::seconds(10));
    return rendezvous::Resolved{};
  });
  EXPECT_TRUE(loop_.run_until([this] { return !refused_->empty(); }, Clock::now() + milliseconds(30'000)));
  EXPECT_EQ(*refused_,
            "the time is up (1 s): no agent hosts at stub: no name server answers; where a job has lost its hosting "
            "agent, its nodes have said where they go on");
  answers.set_value();
}

TEST_F(HostLineDoorTest, ANameThatIsNotKnownYetIsAskedAnew) {
  int asked = 0;
  connect([&] {
    return ++asked < 3 ? rendezvous::Resolved{.addresses = {}, .why = "no such host: no"}
                       : rendezvous::Resolved{.addresses = {address_}, .why = {}};
  });
  EXPECT_TRUE(is_let_in_as(1));
  EXPECT_EQ(waits_, "waiting for the agent that hosts at stub: no such host: no");
  EXPECT_EQ(asked, 3);
}

// The first may be of a network that is not there.
TEST_F(HostLineDoorTest, AllAddressesOfANameAreTried) {
  rendezvous::SocketAddress nobody = address_;
  nobody.set_port(1);
  rendezvous::SocketAddress of_no_family = address_;
  of_no_family.bytes.ss_family = AF_X25;
  connect([=, this] { return rendezvous::Resolved{.addresses = {of_no_family, nobody, address_}, .why = {}}; });
  EXPECT_TRUE(is_let_in_as(1));
  EXPECT_EQ(waits_, "") << "not before all were tried";
}

TEST_F(HostLineDoorTest, WhatIsWrongWithAllOfThemIsSaidOnce) {
  rendezvous::SocketAddress nobody = address_;
  nobody.set_port(1);
  connect([=, this] { return rendezvous::Resolved{.addresses = {nobody, nobody}, .why = {}}; });
  loop_.run_until([this] { return !waits_.empty(); }, Clock::now() + milliseconds(30'000));
  EXPECT_EQ(waits_, "waiting for the agent that hosts at stub: Connection refused");
}

// Strangers can bring it about, as many times as they like.
TEST_F(HostLineDoorTest, WhoIsTurnedAwayWithoutAWordComesAgain) {
  connect([this] { return rendezvous::Resolved{.addresses = {address_}, .why = {}}; });
  EXPECT_TRUE(is_let_in_as(14));
}

// A hosting agent that is stopped for a while, whose kernel accepts.
TEST_F(HostLineDoorTest, WhoIsNotSpokenToComesAgain) {
  settings_.misses = 2;
  settings_.keep_alive = milliseconds(50);
  connect([this] { return rendezvous::Resolved{.addresses = {address_}, .why = {}}; });
  base::UniqueFd silent;
  ASSERT_TRUE(loop_.run_until(
      [&] {
        if (!silent) silent = rendezvous::accept_at(listener_.get());
        tick_ = loop_.at(Clock::now() + milliseconds(5), [] {});
        return !waits_.empty();
      },
      Clock::now() + milliseconds(30'000)));
  EXPECT_EQ(waits_, "waiting for the agent that hosts at stub: it accepts the connection and says nothing");
  settings_.misses = 600;
  EXPECT_TRUE(is_let_in_as(1));
}

}  // namespace
}  // namespace lockstep::launch
