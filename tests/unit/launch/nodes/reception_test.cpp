// Strangers at the door of the hosting agent.

#include "lockstep/launch/nodes/reception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {
namespace {

using base::UniqueFd;
using rendezvous::resolve;
using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

class ReceptionTest : public ::testing::Test {
 protected:
  // Nobody is silent by chance, on however slow a machine.
  explicit ReceptionTest(milliseconds silence = milliseconds(60'000)) {
    rendezvous::Listening listening = rendezvous::listen_at(resolve("test", "127.0.0.1", 0));
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    getsockname(listening.fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    address_ = resolve("test", "127.0.0.1", ntohs(bound.sin_port));
    reception_.emplace(
        loop_, std::move(listening.fd),
        Reception::Settings{.keep_alive = milliseconds(20),
                            .silence = silence,
                            .accept_channel = [](int fd) { return std::make_unique<PlainChannel>(fd); }},
        Reception::Events{.message = [this](std::uint64_t id, const rendezvous::Message& message) { on(id, message); },
                          .gone = [this](std::uint64_t id, const std::string& why, Parting how,
                                         Clock::time_point) { gone_.push_back(told(why, how)); },
                          .notes = [this](const std::string& line) { notes_.push_back(line); }});
  }

  void on(std::uint64_t id, const rendezvous::Message& message) {
    ++messages_;
    if (std::holds_alternative<rendezvous::Join>(message)) reception_->trust(id);
  }

  static std::string told(const std::string& why, Parting how) {
    return how == Parting::silent ? "silent" : how == Parting::cut ? "cut: " + why : why;
  }

  UniqueFd connect() {
    UniqueFd fd = rendezvous::begin_connect(address_, {});
    EXPECT_TRUE(fd);
    return fd;
  }

  void say(const UniqueFd& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }

  // Whether the other side has closed it, after what it has said.
  bool closed(const UniqueFd& fd) {
    return loop_.run_until(
        [&] {
          char bytes[4096];
          ssize_t got = 1;
          while (got > 0) got = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
          return got == 0 || (errno != EAGAIN && errno != EINTR);
        },
        Clock::now() + milliseconds(3'000));
  }

  bool waits(const std::function<bool()>& done) { return loop_.run_until(done, Clock::now() + milliseconds(3'000)); }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  EventLoop::Handle tick_;
  rendezvous::SocketAddress address_;
  std::optional<Reception> reception_;
  std::vector<std::string> gone_, notes_;
  int messages_ = 0;
};

TEST_F(ReceptionTest, GarbageIsDroppedAndSaysNothingToTheJob) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(3, '\x16') + std::string(300, 'x'),
        std::string("LKr\x05\xff\xff\xff\x7f", 8), std::string("LKr\x05\x01\0\0\0\x63", 9),
        to_frame(rendezvous::Waiting{.reason = std::string(4'000, 'x')})}) {
    const UniqueFd fd = connect();
    say(fd, bytes);
    EXPECT_TRUE(closed(fd)) << bytes.substr(0, 10);
  }
  EXPECT_EQ(messages_, 0);
  EXPECT_TRUE(gone_.empty());
}

TEST_F(ReceptionTest, TorchrunsAgentIsToldOfOnce) {
  for (int i = 0; i < 3; ++i) {
    const UniqueFd fd = connect();
    say(fd, std::string(rendezvous::kTcpStoreHello));
    EXPECT_TRUE(closed(fd));
  }
  EXPECT_THAT(notes_, ::testing::ElementsAre(::testing::StartsWith("a torchrun agent at 127.0.0.1:")));
  EXPECT_TRUE(gone_.empty());
}

// One of ours that was turned away asks what this is: nobody's agent wants to join.
TEST_F(ReceptionTest, OurOwnQuestionIsNotTakenForTorchrun) {
  const UniqueFd fd = connect();
  say(fd, std::string(rendezvous::kTcpStoreProbe));
  EXPECT_TRUE(closed(fd));
  EXPECT_TRUE(notes_.empty()) << notes_.front();
}

// Who waits at the door makes it readable all the time: without a rest the loop would do nothing else.
TEST_F(ReceptionTest, WithoutDescriptorsWhoComesWaitsAndTheLoopRests) {
  const UniqueFd fd = connect();
  say(fd, to_frame(rendezvous::Join{.host = "h"}));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  int turns = 0;
  for (const auto until = Clock::now() + milliseconds(50); Clock::now() < until; ++turns) loop_.turn(until);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(turns, 30);  // of its keep-alive
  EXPECT_EQ(messages_, 0);
  EXPECT_THAT(notes_, ::testing::ElementsAre(::testing::HasSubstr("this process may have 3 files open")));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
}

TEST_F(ReceptionTest, ManyHalfOpenOnesGiveWayAndARightOneComesIn) {
  std::vector<UniqueFd> strangers;
  for (std::size_t i = 0; i < kMostStrangers + 40; ++i) {
    strangers.push_back(connect());
    say(strangers.back(), "LK");
    loop_.turn(Clock::now());
  }
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(closed(strangers[i])) << i;
  const UniqueFd right = connect();
  say(right, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  for (std::size_t i = 0; i < 2 * kMostStrangers; ++i) strangers.push_back(connect());
  loop_.turn(Clock::now());
  say(right, to_frame(rendezvous::Ready{}));
  EXPECT_TRUE(waits([this] { return messages_ == 2; })) << "strangers do not drive out who is in";
}

struct ImpatientReceptionTest : ReceptionTest {
  ImpatientReceptionTest() : ReceptionTest(milliseconds(100)) {}
};

TEST_F(ImpatientReceptionTest, WhoSaysNothingIsLost) {
  const UniqueFd fd = connect();
  say(fd, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return !gone_.empty(); }));
  EXPECT_THAT(gone_, ::testing::ElementsAre("silent"));
}

TEST_F(ReceptionTest, WhoDoesNotReadIsDropped) {
  const UniqueFd fd = connect();
  say(fd, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  // What the kernel keeps for it is some megabytes.
  for (int i = 0; i < 20'000 && gone_.empty(); ++i) {
    reception_->send(0, rendezvous::Waiting{.reason = std::string(8'000, 'x')});
    if (i % 64 == 0) loop_.turn(Clock::now());
  }
  EXPECT_TRUE(waits([this] { return !gone_.empty(); }));
  EXPECT_THAT(gone_, ::testing::ElementsAre("cut: it does not read what it is sent"));
}

// An agent that ends while some of it is on the way takes it back: a word of the other side is answered with a reset.
TEST_F(ReceptionTest, WhatTheKernelHasTakenHasNotArrivedYet) {
  const UniqueFd fd = connect();
  const int little = 32 * 1024;
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  say(fd, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  for (int i = 0; i < 50; ++i) reception_->send(0, rendezvous::Waiting{.reason = std::string(8'000, 'x')});
  EXPECT_FALSE(loop_.run_until([this] { return reception_->all_has_arrived(); }, Clock::now() + milliseconds(50)));
  const auto read = [&] {
    char bytes[4096];
    while (recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    return reception_->all_has_arrived();
  };
  EXPECT_TRUE(waits(read));
  EXPECT_TRUE(gone_.empty());
}

TEST_F(ReceptionTest, AClosedConnectionIsALossAtOnce) {
  {
    const UniqueFd fd = connect();
    say(fd, to_frame(rendezvous::Join{.host = "h"}));
    EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  }
  EXPECT_TRUE(waits([this] { return !gone_.empty(); }));
  EXPECT_THAT(gone_, ::testing::ElementsAre("connection closed"));
}

// Who resets a connection may live: a firewall does it for him.
TEST_F(ReceptionTest, AResetIsNoWordOfADeath) {
  UniqueFd fd = connect();
  say(fd, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd = {};
  EXPECT_TRUE(waits([this] { return !gone_.empty(); }));
  EXPECT_THAT(gone_, ::testing::ElementsAre(::testing::StartsWith("cut: ")));
}

// Of a job that has ended: the port is the next one's, and who is in still hears how it has ended.
TEST_F(ReceptionTest, AShutDoorFreesThePort) {
  const UniqueFd in = connect();
  say(in, to_frame(rendezvous::Join{.host = "h"}));
  EXPECT_TRUE(waits([this] { return messages_ == 1; }));
  reception_->shut();
  reception_->shut();
  const rendezvous::Listening next = rendezvous::listen_at(address_);
  EXPECT_TRUE(next.fd);
  say(in, to_frame(rendezvous::Ready{}));
  EXPECT_TRUE(waits([this] { return messages_ == 2; }));
  reception_->send(0, rendezvous::Waiting{.reason = "here still"});
  char bytes[100];
  EXPECT_GT(recv(in.get(), bytes, sizeof bytes, 0), 0);
  EXPECT_TRUE(gone_.empty());
}

// As many as come at once are let in, one after the other: they were there before any of them was too old.
TEST_F(ReceptionTest, ACrowdOfRightOnesComesIn) {
  std::vector<UniqueFd> agents;
  for (std::size_t i = 0; i < 100; ++i) {
    agents.push_back(connect());
    say(agents.back(), to_frame(rendezvous::Join{.host = "h"}));
  }
  EXPECT_TRUE(waits([this] { return messages_ == 100; })) << messages_;
  EXPECT_TRUE(gone_.empty());
}

}  // namespace
}  // namespace lockstep::launch
