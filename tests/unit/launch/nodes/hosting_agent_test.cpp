// What a hosting agent does while the machine's resolver, of which there is a stand-in, says nothing.

#include "lockstep/launch/nodes/hosting_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/usage_error.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = EventLoop::Clock;

class HostingAgentTest : public ::testing::Test {
 protected:
  HostingAgentTest() {
    plan_.nodes.emplace();
    plan_.nodes->limits.min_nodes = plan_.nodes->limits.max_nodes = 2;
    plan_.nodes->host = "localhost";
    plan_.nodes->is_host = true;
    plan_.nodes->misses = 60;  // nobody is silent by chance
  }

  // Of a machine whose name servers are dead until answers_ is set; what every name means then.
  Resolver dead_at_first(const rendezvous::Resolved& found) {
    return
        [asked = asked_, answer = answers_.get_future().share(), found](const std::string&, const std::string&, int) {
          ++*asked;
          const bool in_time = answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
          return in_time ? found : rendezvous::Resolved{.addresses = {}, .why = "the loop stood still"};
        };
  }
  static rendezvous::Resolved known(const std::string& figures) {
    return {.addresses = {rendezvous::resolve("test", figures, 0)}, .why = {}};
  }

  std::unique_ptr<HostingAgent> agent(const Resolver& resolver) {
    return std::make_unique<HostingAgent>(
        plan_, loop_,
        HostLine::Events{.message = [](const rendezvous::Message&) {},
                         .waits = [](const std::string&) {},
                         .refused = [this](const std::string& why) { refused_ = why; },
                         .lost = [](const std::string& why, Parting) { ADD_FAILURE() << why; },
                         .leased = [](Clock::time_point) {}},
        [](const std::string&) {}, resolver);
  }
  // Signals and the leash are events of the loop, as this is.
  EventLoop::Handle answers_come() {
    return loop_.at(Clock::now(), [this] { answers_.set_value(); });
  }
  bool turns_until(const std::function<bool()>& done) {
    return loop_.run_until(done, Clock::now() + milliseconds(30'000));
  }

  base::Outlet console_ = base::Outlet::console(STDERR_FILENO);
  EventLoop loop_{console_};
  Plan plan_;
  std::promise<void> answers_;
  const std::shared_ptr<std::atomic<int>> asked_ = std::make_shared<std::atomic<int>>(0);
  std::optional<std::string> refused_;
};

TEST_F(HostingAgentTest, OneThatMustHostTurnsTheLoopWhileNoNameServerAnswers) {
  const auto host = agent(dead_at_first(known("127.0.0.1")));
  EXPECT_FALSE(host->is_here());
  EXPECT_TRUE(host->is_to_be_here()) << "it says what holds for all";
  const EventLoop::Handle event = answers_come();
  EXPECT_TRUE(turns_until([&] { return host->is_here(); }));
  EXPECT_EQ(asked_->load(), 1) << "the question that was asked at first is the one that is waited for";
}

TEST_F(HostingAgentTest, ALocalAddressThatIsANameDoesNotHoldItUpEither) {
  plan_.nodes->local_addr = "me";
  const auto host = agent(dead_at_first(known("127.0.0.1")));
  const EventLoop::Handle event = answers_come();
  EXPECT_TRUE(turns_until([&] { return host->is_here(); }));
  EXPECT_EQ(asked_->load(), 2) << "one name, and the other";
}

TEST_F(HostingAgentTest, TheTimeToJoinIsTheResolversToo) {
  plan_.nodes->limits.join_timeout = milliseconds(100);
  const auto host = agent(dead_at_first(known("127.0.0.1")));
  EXPECT_TRUE(turns_until([&] { return refused_.has_value(); }));
  EXPECT_THAT(refused_.value_or(""), HasSubstr("the time is up (1 s)"));
  EXPECT_THAT(refused_.value_or(""), HasSubstr("no name server answers"));
  answers_.set_value();
}

TEST_F(HostingAgentTest, WhatIsWrongWithAnAnswerThatComesLateIsSaid) {
  const rendezvous::Resolved nobody{.addresses = {}, .why = "no such host: nobody knows it"};
  const auto host = agent(dead_at_first(nobody));
  const EventLoop::Handle event = answers_come();
  EXPECT_EQ(testing::usage_error([&] { turns_until([] { return false; }); }),
            "run: --rdzv-endpoint localhost: no such host: nobody knows it");
}

TEST_F(HostingAgentTest, SoIsWhatIsWrongWithALocalAddress) {
  plan_.nodes->local_addr = "me";
  const auto host = agent(dead_at_first(known("192.0.2.1")));
  const EventLoop::Handle event = answers_come();
  EXPECT_THAT(testing::usage_error([&] { turns_until([] { return false; }); }),
              HasSubstr("run: --local-addr me: not an address of this machine ("));
}

}  // namespace
}  // namespace lockstep::launch
