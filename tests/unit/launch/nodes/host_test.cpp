// The hosting agent's part, over real sockets of the loopback, with members that a test speaks for.

#include "lockstep/launch/nodes/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/rendezvous/socket.h"

namespace lockstep::launch {
namespace {

using rendezvous::Message;
using rendezvous::resolve;
using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

class HostTest : public ::testing::Test {
 protected:
  struct Member {
    base::UniqueFd fd;
    std::string received;
    std::vector<std::size_t> passed_over = {};  // kinds of messages
  };

  explicit HostTest(milliseconds join_timeout = milliseconds(600'000), int least = 1, int most = 3) {
    settings_.nodes.limits = {
        .min_nodes = least, .max_nodes = most, .join_timeout = join_timeout, .last_call_timeout = milliseconds(0)};
    settings_.nodes.misses = 60;  // nobody is silent by chance
    settings_.own = {.version = "1", .nnodes = "1:3", .backend = "c10d", .host = "h0"};
    settings_.own.misses = settings_.nodes.misses;
    settings_.max_restarts = 100;
    settings_.accept_channel = [](int fd) { return std::make_unique<PlainChannel>(fd); };
    rendezvous::Listening listening = rendezvous::listen_at(resolve("test", "127.0.0.1", 0));
    address_ = rendezvous::own_end(listening.fd.get());
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    own_.fd = base::UniqueFd(ends[0]);
    host_.emplace(loop_, settings_, std::move(listening.fd), base::UniqueFd(ends[1]));
  }

  void say(Member& member, const Message& message) {
    const std::string bytes = to_frame(message);
    EXPECT_EQ(send(member.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }

  void join(Member& member, const std::string& host) {
    say(member, rendezvous::Join{.version = "1", .nnodes = "1:3", .backend = "c10d", .host = host, .misses = 60});
  }

  Member come(const std::string& host) {
    Member member{.fd = rendezvous::begin_connect(address_, {}), .received = {}};
    join(member, host);
    return member;
  }

  // The next message of this kind; those before it are passed over.
  template <class T>
  std::optional<T> next(Member& member) {
    std::optional<T> found;
    loop_.run_until(
        [&] {
          char bytes[4096];
          const ssize_t got = recv(member.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
          if (got > 0) member.received.append(bytes, std::size_t(got));
          while (!found) {
            const auto message = rendezvous::take_message(member.received, rendezvous::kLongestMessage);
            if (!message) return false;
            if (const auto* right = std::get_if<T>(&*message))
              found = *right;
            else
              member.passed_over.push_back(message->index());
          }
          return true;
        },
        Clock::now() + milliseconds(5'000));
    return found;
  }

  // All of `members` have ended a generation in which nobody failed, and want the next one; their ranks in it.
  std::vector<std::int64_t> again(const std::vector<Member*>& members, std::int64_t ended) {
    for (Member* member : members) say(*member, rendezvous::Done{.generation = ended, .code = kExitStopped});
    for (Member* member : members) {
      EXPECT_TRUE(next<rendezvous::Outcome>(*member));
      say(*member, rendezvous::Ready{});
    }
    return ranks(members);
  }

  // Somebody has come, and the workers of the hosting node make no steps.
  void end_for_newcomer() {
    const auto room = next<rendezvous::MakeRoom>(own_);
    ASSERT_TRUE(room);
    say(own_, rendezvous::NotInSteps{room->generation});
    EXPECT_TRUE(next<rendezvous::EndNow>(own_));
  }

  std::vector<std::int64_t> ranks(const std::vector<Member*>& members) {
    std::vector<std::int64_t> ranks;
    for (Member* member : members)
      ranks.push_back(next<rendezvous::Start>(*member).value_or(rendezvous::Start{.rank = -1}).rank);
    return ranks;
  }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  HostSettings settings_;
  rendezvous::SocketAddress address_;
  Member own_;
  std::optional<Host> host_;
};

class ImpatientHostTest : public HostTest {
 protected:
  ImpatientHostTest() : HostTest(milliseconds(200)) {}
};

// Nobody is told to end at once, and who comes next is let in by the same end.
TEST_F(HostTest, ANewcomerIsLetInBehindAStep) {
  join(own_, "h0");
  EXPECT_TRUE(next<rendezvous::Start>(own_));
  Member first = come("h1");
  EXPECT_TRUE(next<rendezvous::MakeRoom>(own_));
  Member second = come("h2");
  const auto waiting = next<rendezvous::Waiting>(second);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->reason, "room is made behind the next step: h1 has come");
  say(own_, rendezvous::Done{.generation = 1, .code = kExitFailure});
  const auto outcome = next<rendezvous::Outcome>(own_);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->again);
  EXPECT_FALSE(outcome->counts);
  for (const Message& unwanted : {Message(rendezvous::EndNow{}), Message(rendezvous::MakeRoom{})})
    EXPECT_THAT(own_.passed_over, ::testing::Not(::testing::Contains(unwanted.index())));
  say(own_, rendezvous::Ready{});
  EXPECT_THAT(ranks({&own_, &first, &second}), ::testing::ElementsAre(0, 1, 2));
}

TEST_F(HostTest, AFailureWhileRoomIsMadeIsOne) {
  join(own_, "h0");
  EXPECT_TRUE(next<rendezvous::Start>(own_));
  Member late = come("h1");
  EXPECT_TRUE(next<rendezvous::MakeRoom>(own_));
  say(own_, rendezvous::Failed{.generation = 1, .code = 3});
  EXPECT_TRUE(next<rendezvous::EndNow>(own_));
  say(own_, rendezvous::Done{.generation = 1, .code = 3});
  const auto outcome = next<rendezvous::Outcome>(own_);
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->counts);
}

// As long as a job waits for its first nodes.
TEST_F(ImpatientHostTest, AStepThatDoesNotEndIsNotWaitedForAtAnyLength) {
  join(own_, "h0");
  EXPECT_TRUE(next<rendezvous::Start>(own_));
  Member late = come("h1");
  EXPECT_TRUE(next<rendezvous::MakeRoom>(own_));
  EXPECT_TRUE(next<rendezvous::EndNow>(own_));
  EXPECT_THAT(again({&own_}, 1), ::testing::ElementsAre(0));
}

// Else he takes it for one that says nothing, and gives up.
TEST_F(HostTest, WhoComesWhileAGenerationEndsHearsAWord) {
  join(own_, "h0");
  EXPECT_TRUE(next<rendezvous::Start>(own_));
  Member first = come("h1");  // room is made for it, which takes its time
  end_for_newcomer();
  Member second = come("h2");
  for (Member* member : {&first, &second}) {
    auto waiting = next<rendezvous::Waiting>(*member);
    while (waiting && waiting->reason.starts_with("room is made")) waiting = next<rendezvous::Waiting>(*member);
    ASSERT_TRUE(waiting);
    EXPECT_EQ(waiting->reason, "the workers of the last generation are ending");
  }
  EXPECT_THAT(again({&own_}, 1), ::testing::ElementsAre(0));
  EXPECT_TRUE(next<rendezvous::Start>(first));
}

// The third generation is without both of them.
// No generation's end tells of it then.
TEST_F(HostTest, WhoIsAskedToEndBetweenTwoGenerationsLeavesAtOnce) {
  join(own_, "h0");
  EXPECT_TRUE(next<rendezvous::Start>(own_));
  Member first = come("h1");
  end_for_newcomer();
  EXPECT_THAT(again({&own_}, 1), ::testing::ElementsAre(0));
  EXPECT_TRUE(next<rendezvous::Start>(first));
  say(first, rendezvous::Failed{.generation = 2, .code = 3});
  for (Member* member : {&own_, &first}) say(*member, rendezvous::Done{.generation = 2, .code = 3});
  EXPECT_TRUE(next<rendezvous::Outcome>(own_));
  EXPECT_TRUE(next<rendezvous::Outcome>(first));
  say(own_, rendezvous::Ready{});
  say(first, rendezvous::Stopping{.generation = 2, .signal = SIGTERM});
  const auto answer = next<rendezvous::Outcome>(first);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code, 128 + SIGTERM);
  EXPECT_FALSE(answer->again);
  const auto start = next<rendezvous::Start>(own_);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->nodes, 1);
}

TEST_F(HostTest, AHostGetsItsRankAgainAfterAGenerationWithoutIt) {
  join(own_, "h0");
  EXPECT_THAT(ranks({&own_}), ::testing::ElementsAre(0));
  Member one = come("h1");
  Member two = come("h2");
  EXPECT_TRUE(next<rendezvous::Waiting>(two));
  end_for_newcomer();
  EXPECT_THAT(again({&own_}, 1), ::testing::ElementsAre(0));
  EXPECT_THAT(ranks({&one, &two}), ::testing::ElementsAre(1, 2));
  one.fd = {};
  two.fd = {};
  EXPECT_TRUE(next<rendezvous::EndNow>(own_));
  EXPECT_THAT(again({&own_}, 2), ::testing::ElementsAre(0));
  Member two_again = come("h2");
  end_for_newcomer();
  Member one_again = come("h1");
  EXPECT_TRUE(next<rendezvous::Waiting>(one_again));
  EXPECT_THAT(again({&own_}, 3), ::testing::ElementsAre(0));
  EXPECT_THAT(ranks({&two_again, &one_again}), ::testing::ElementsAre(2, 1));
}

class FixedHostTest : public HostTest {
 protected:
  FixedHostTest() : HostTest(milliseconds(600'000), 2, 2) {}

  // A worker of `one` fails, and both want the next generation: what they are told.
  std::string fail(Member& one, std::int64_t generation) {
    say(one, rendezvous::Failed{.generation = generation, .code = 3});
    for (Member* member : {&own_, &one}) say(*member, rendezvous::Done{.generation = generation, .code = 3});
    EXPECT_TRUE(next<rendezvous::Outcome>(one));
    const auto outcome = next<rendezvous::Outcome>(own_);
    for (Member* member : {&own_, &one}) say(*member, rendezvous::Ready{});
    return outcome.value_or(rendezvous::Outcome{}).text;
  }
};

// Where no node may be missing a job goes on without one if another waits.
TEST_F(FixedHostTest, ALeftOutHostIsToldOfWhereASpareStepsIn) {
  join(own_, "h0");
  Member one = come("h1");
  EXPECT_THAT(ranks({&own_, &one}), ::testing::ElementsAre(0, 1));
  for (std::int64_t generation = 1; generation <= 3; ++generation) {
    EXPECT_EQ(fail(one, generation), "") << generation;
    EXPECT_THAT(ranks({&own_, &one}), ::testing::ElementsAre(0, 1));
  }
  Member spare = come("h2");
  EXPECT_TRUE(next<rendezvous::Waiting>(spare));
  EXPECT_THAT(fail(one, 4), ::testing::HasSubstr("host h1 has failed 4 times: it is left out for 60 s"));
  EXPECT_THAT(ranks({&own_, &spare}), ::testing::ElementsAre(0, 1));
}

// A firewall may have sent it to this side alone: until its own limit the other one's workers may run.
TEST_F(FixedHostTest, BehindAResetTheNextGenerationWaitsForTheLimitOfTheLostNode) {
  join(own_, "h0");
  Member one = come("h1");
  EXPECT_THAT(ranks({&own_, &one}), ::testing::ElementsAre(0, 1));
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(one.fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  one.fd = {};
  EXPECT_TRUE(next<rendezvous::EndNow>(own_));
  say(own_, rendezvous::Done{.generation = 1, .code = kExitFailure});
  EXPECT_TRUE(next<rendezvous::Outcome>(own_));
  say(own_, rendezvous::Ready{});
  Member spare = come("h2");  // with it they are enough
  loop_.run_until([] { return false; }, Clock::now() + 2 * kCutOffMargin);
  Member last = come("h3");
  const auto waiting = next<rendezvous::Waiting>(last);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->reason, "workers of a node that was lost may still run");
}

TEST_F(HostTest, OneWithAnotherKeepAliveIsRefused) {
  Member other{.fd = rendezvous::begin_connect(address_, {}), .received = {}};
  say(other, rendezvous::Join{
                 .version = "1", .nnodes = "1:3", .backend = "c10d", .host = "h1", .keep_alive = 10'000, .misses = 60});
  const auto refused = next<rendezvous::Refused>(other);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, "--rdzv-conf keep_alive_interval is '10' on h1 and '1' on h0");
}

}  // namespace
}  // namespace lockstep::launch
