#include "lockstep/launch/agent/stages.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{10'000};

Stages last_words(milliseconds grace = kGrace) {
  Stages stages(grace);
  stages.on_failure(/*more_to_come=*/true);
  return stages;
}

Stages ending(int signal = SIGTERM) {
  Stages stages(kGrace);
  stages.on_stop(signal);
  return stages;
}

void expect_nothing(const Orders& orders) {
  EXPECT_FALSE(orders.conclude || orders.abandon || orders.deadline);
  EXPECT_EQ(orders.signal, 0);
}

void expect_end(const Orders& orders, int signal, bool conclude) {
  EXPECT_EQ(orders.conclude, conclude);
  EXPECT_EQ(orders.signal, signal);
  EXPECT_EQ(orders.deadline, kGrace);
  EXPECT_FALSE(orders.abandon);
}

void expect_kill(const Orders& orders, bool conclude) {
  EXPECT_EQ(orders.conclude, conclude);
  EXPECT_EQ(orders.signal, SIGKILL);
  EXPECT_EQ(orders.deadline, kKillWait);
  EXPECT_FALSE(orders.abandon);
}

TEST(Stages, AFailureEndsTheOthers) {
  Stages stages(kGrace);
  EXPECT_EQ(stages.stage(), Stage::running);
  expect_end(stages.on_failure(false), SIGTERM, true);
  EXPECT_EQ(stages.stage(), Stage::ending);
  expect_nothing(stages.on_failure(false));
  expect_nothing(stages.on_failure(true));
  EXPECT_EQ(stages.stop_signal(), 0);
}

TEST(Stages, WhoMayHaveFailedBeforeGetsAMomentToSaySo) {
  Stages stages(kGrace);
  const Orders orders = stages.on_failure(true);
  EXPECT_EQ(stages.stage(), Stage::last_words);
  EXPECT_EQ(orders.deadline, kLastWords);
  EXPECT_FALSE(orders.conclude || orders.abandon);
  EXPECT_EQ(orders.signal, 0);
  expect_nothing(stages.on_failure(true));
  expect_end(stages.on_failure(false), SIGTERM, true);
}

TEST(Stages, LastWordsTakeNoLongerThanTheGracePeriod) {
  Stages stages(milliseconds(300));
  EXPECT_EQ(stages.on_failure(true).deadline, milliseconds(300));
  EXPECT_TRUE(stages.on_deadline().conclude);
  EXPECT_EQ(stages.stage(), Stage::ending);

  Stages hasty(milliseconds(0));
  EXPECT_TRUE(hasty.on_failure(true).conclude);
}

TEST(Stages, EachDeadlineGoesOneFurther) {
  Stages stages = last_words();
  expect_end(stages.on_deadline(), SIGTERM, true);
  expect_kill(stages.on_deadline(), false);
  EXPECT_EQ(stages.stage(), Stage::killing);
  const Orders orders = stages.on_deadline();
  EXPECT_TRUE(orders.abandon);
  EXPECT_EQ(orders.signal, 0);
  EXPECT_FALSE(orders.deadline);
}

TEST(Stages, WorkersGetTheFirstStopSignalAsItIs) {
  Stages stages(kGrace);
  expect_end(stages.on_stop(SIGUSR1), SIGUSR1, false);
  EXPECT_EQ(stages.stop_signal(), SIGUSR1);
  expect_nothing(stages.on_failure(false));
}

TEST(Stages, ASecondStopSignalKillsWhenItMeansIt) {
  Stages twice = ending(SIGTERM);
  expect_kill(twice.on_stop(SIGTERM), false);
  Stages interrupted = ending(SIGHUP);
  expect_kill(interrupted.on_stop(SIGINT), false);
  EXPECT_EQ(interrupted.stop_signal(), SIGHUP) << "the first stays the first";
  Stages closed = ending(SIGHUP);
  expect_nothing(closed.on_stop(SIGHUP));
  expect_nothing(closed.on_stop(SIGTERM));
  EXPECT_EQ(closed.stage(), Stage::ending);
}

TEST(Stages, AStopSignalWhileAFailureIsLookedInto) {
  Stages asked = last_words();
  expect_end(asked.on_stop(SIGTERM), SIGTERM, true);
  EXPECT_EQ(asked.stop_signal(), SIGTERM);
  Stages interrupted = last_words();
  expect_kill(interrupted.on_stop(SIGINT), true);
  EXPECT_EQ(interrupted.stage(), Stage::killing);
}

TEST(Stages, AStopSignalAfterAFailureIsNoSecondOne) {
  Stages stages(kGrace);
  stages.on_failure(false);
  expect_nothing(stages.on_stop(SIGTERM));
  expect_kill(stages.on_stop(SIGTERM), false);
}

TEST(Stages, KillingIsRepeatedForWhoAsksAgain) {
  Stages stages = ending(SIGINT);
  expect_kill(stages.on_stop(SIGINT), false);
  expect_kill(stages.on_stop(SIGINT), false);
  expect_nothing(stages.on_stop(SIGHUP));
}

TEST(Stages, WhoStaysWhereOthersLeaveIsEndedBehindTheGracePeriod) {
  Stages stages(kGrace);
  const Orders orders = stages.on_leaving();
  EXPECT_EQ(orders.deadline, kGrace);
  EXPECT_FALSE(orders.conclude || orders.abandon);
  EXPECT_EQ(orders.signal, 0);
  EXPECT_EQ(stages.stage(), Stage::running);
  expect_nothing(stages.on_leaving());
  expect_end(stages.on_deadline(), SIGTERM, false);
  expect_kill(stages.on_deadline(), false);

  Stages told = ending();
  expect_nothing(told.on_leaving());
}

TEST(Stages, NothingLeftToRunForEndsTheRest) {
  Stages stages(kGrace);
  expect_end(stages.stop_running(), SIGTERM, false);
  expect_nothing(stages.stop_running());
  Stages talking = last_words();
  expect_nothing(talking.stop_running());
  EXPECT_EQ(talking.stage(), Stage::last_words);
}

}  // namespace
}  // namespace lockstep::launch
