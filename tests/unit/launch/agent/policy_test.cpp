#include "lockstep/launch/agent/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr AttemptFacts kFailed{.code = 1, .uptime = milliseconds(5'000)};

Decision decide_on(const AttemptFacts& facts, const History& history = {}, int max_restarts = 3,
                   const std::vector<int>& codes = {}) {
  return decide(facts, history, max_restarts, codes);
}

TEST(Decide, SuccessIsTheEnd) {
  EXPECT_EQ(decide_on({.code = 0}).next, Next::finish);
  EXPECT_EQ(decide_on({.code = 0}).why_not, "");
}

TEST(Decide, AFailureIsRestartedWhileRestartsAreLeft) {
  EXPECT_EQ(decide_on(kFailed).next, Next::restart);
  EXPECT_EQ(decide_on(kFailed, {.restarts = 2}).next, Next::restart);
  EXPECT_EQ(decide_on(kFailed, {.restarts = 3}).next, Next::finish);
  EXPECT_EQ(decide_on(kFailed, {}, 0).next, Next::finish);
  EXPECT_EQ(decide_on(kFailed, {.restarts = 3}).why_not, "") << "all used up needs no word";
}

TEST(Decide, WhoAskedForTheEndGetsIt) {
  EXPECT_EQ(decide_on({.code = 143, .stopped = true}).next, Next::finish);
  EXPECT_EQ(decide_on({.code = 75}).next, Next::finish) << "a worker was asked, and the job has stopped in good order";
}

TEST(Decide, WhatWouldFailAgainIsNotRestarted) {
  AttemptFacts facts = kFailed;
  facts.bad_input = true;
  EXPECT_THAT(decide_on(facts).why_not, HasSubstr("bad input"));
  facts = kFailed;
  facts.never_ran = true;
  EXPECT_THAT(decide_on(facts).why_not, HasSubstr("cannot be executed"));
  facts = kFailed;
  facts.code = 137;
  EXPECT_THAT(decide_on(facts, {}, 3, {2, 137}).why_not, HasSubstr("exit code 137"));
  EXPECT_EQ(decide_on(facts, {}, 3, {2}).next, Next::restart);
}

TEST(Decide, NothingStartsBesideAProcessThatLives) {
  AttemptFacts facts = kFailed;
  facts.left_behind = true;
  facts.port_was_taken = true;
  EXPECT_EQ(decide_on(facts).next, Next::finish);
  EXPECT_THAT(decide_on(facts).why_not, HasSubstr("could not be killed"));
}

TEST(Decide, ALostPortIsNoRestart) {
  AttemptFacts facts = kFailed;
  facts.port_was_taken = true;
  EXPECT_EQ(decide_on(facts, {}, 0).next, Next::new_port);
  EXPECT_EQ(decide_on(facts, {.ports_lost = kMaxPortsLost}, 0).next, Next::finish);
  // A program of ours does not use the port; and who has run for long has had it.
  facts.joined = true;
  EXPECT_EQ(decide_on(facts, {}, 0).next, Next::finish);
  facts.joined = false;
  facts.uptime = kPortRace + milliseconds(1);
  EXPECT_EQ(decide_on(facts, {}, 0).next, Next::finish);
}

TEST(IsStrangers, OnlyWhatIsNoSocketOfOurs) {
  EXPECT_TRUE(is_strangers({7}, {.inodes = {}}));
  EXPECT_TRUE(is_strangers({7}, {.inodes = {5, 6}}));
  EXPECT_FALSE(is_strangers({7}, {.inodes = {5, 7}})) << "a daemon that a worker left behind";
  EXPECT_TRUE(is_strangers({7, 8}, {.inodes = {7}})) << "of two listeners one is a stranger";
  EXPECT_FALSE(is_strangers({7}, {.inodes = {}, .complete = false})) << "who knows";
  EXPECT_TRUE(is_strangers({}, {.inodes = {}})) << "it does not listen, and we have no socket";
  EXPECT_FALSE(is_strangers({}, {.inodes = {5}})) << "it may be this one";
}

TEST(EndsAtOnce, WhoAsksTwiceMeansIt) {
  EXPECT_TRUE(ends_at_once(SIGINT, SIGINT));
  EXPECT_TRUE(ends_at_once(SIGTERM, SIGINT));
  EXPECT_TRUE(ends_at_once(SIGTERM, SIGTERM));
  EXPECT_TRUE(ends_at_once(0, SIGINT)) << "the grace period after a failure is cut short";
  EXPECT_FALSE(ends_at_once(0, SIGTERM));
  EXPECT_FALSE(ends_at_once(SIGHUP, SIGHUP)) << "kernel and shell both send it when a terminal closes";
  EXPECT_FALSE(ends_at_once(SIGTERM, SIGHUP));
  EXPECT_FALSE(ends_at_once(SIGUSR1, SIGUSR1));
}

TEST(BackOff, GrowsWithFailuresInARow) {
  EXPECT_EQ(back_off(0).count(), 0);
  EXPECT_EQ(back_off(1).count(), 0) << "one failure is answered at once";
  EXPECT_EQ(back_off(2).count(), 100);
  EXPECT_EQ(back_off(3).count(), 200);
  EXPECT_EQ(back_off(8).count(), 6'400);
  EXPECT_EQ(back_off(9).count(), 10'000);
  EXPECT_EQ(back_off(1'000'000).count(), 10'000);
  EXPECT_EQ(decide_on(kFailed, {.failures_in_a_row = 3}).delay, milliseconds(200));
}

TEST(PortCandidate, KeepsClearOfOutgoingConnections) {
  for (std::uint64_t random = 0; random < 60'000; random += 7) {
    const int port = port_candidate(random, 32'768, 60'999);
    EXPECT_TRUE((port >= 10'000 && port < 32'768) || (port > 60'999 && port < 65'536)) << port;
  }
}

TEST(PortCandidate, HitsBothEndsOfWhatIsAllowed) {
  EXPECT_EQ(port_candidate(0, 32'768, 60'999), 10'000);
  EXPECT_EQ(port_candidate(22'767, 32'768, 60'999), 32'767);
  EXPECT_EQ(port_candidate(22'768, 32'768, 60'999), 61'000);
  EXPECT_EQ(port_candidate(22'768 + 4'535, 32'768, 60'999), 65'535);
}

TEST(PortCandidate, WhereTheRangeTakesAllAnyPortMustDo) {
  for (const std::uint64_t random : {std::uint64_t(0), std::uint64_t(55'535), ~std::uint64_t(0)}) {
    const int port = port_candidate(random, 1'024, 65'535);
    EXPECT_GE(port, 10'000);
    EXPECT_LT(port, 65'536);
  }
}

}  // namespace
}  // namespace lockstep::launch
