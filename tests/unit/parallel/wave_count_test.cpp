#include "lockstep/parallel/wave_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::parallel {
namespace {

// Of six parameters, from the last on.
std::vector<Wave> three_waves() { return {{.first = 4, .last = 6}, {.first = 3, .last = 4}, {.first = 0, .last = 3}}; }

void come_to(WaveCount& count, const std::vector<std::size_t>& parameters, int shard = 0) {
  for (const std::size_t parameter : parameters) count.came(shard, parameter);
}

const std::vector<std::size_t> kFromTheLast{5, 4, 3, 2, 1, 0};

// So many waves of a step with one pass were whole in it.
int whole_in_step(WaveCount& count, bool again = false) {
  come_to(count, kFromTheLast);
  const int whole = count.whole();
  count.learn(again);
  return whole;
}

TEST(WaveCount, KnowsNothingOfTheFirstStep) {
  WaveCount count(three_waves(), 1);
  EXPECT_EQ(whole_in_step(count), 0);
  EXPECT_EQ(count.whole(), 0) << "nothing of the next one has come";
  EXPECT_EQ(whole_in_step(count), 3);
}

TEST(WaveCount, TellsWavesInTheirOrder) {
  WaveCount count(three_waves(), 1);
  whole_in_step(count);
  come_to(count, {3, 5});
  EXPECT_EQ(count.whole(), 0);
  come_to(count, {4});
  EXPECT_EQ(count.whole(), 2);
  come_to(count, {0, 1});
  EXPECT_EQ(count.whole(), 2);
  come_to(count, {2});
  EXPECT_EQ(count.whole(), 3);
  EXPECT_EQ(count.wave_of(3), 1);
  EXPECT_EQ(count.wave(2).last, 3u);
}

TEST(WaveCount, WaitsForEachShard) {
  WaveCount count(three_waves(), 2);
  for (const int shard : {0, 1}) come_to(count, kFromTheLast, shard);
  count.learn(false);
  come_to(count, kFromTheLast, 0);
  EXPECT_EQ(count.whole(), 0);
  come_to(count, {5, 4}, 1);
  EXPECT_EQ(count.whole(), 1);
}

TEST(WaveCount, WaitsForAsManyPassesAsTheLastStepHad) {
  WaveCount count(three_waves(), 1);
  come_to(count, kFromTheLast);
  EXPECT_EQ(whole_in_step(count), 0);
  come_to(count, kFromTheLast);
  EXPECT_EQ(count.whole(), 0) << "one of two passes";
  EXPECT_EQ(whole_in_step(count), 3);
  EXPECT_EQ(whole_in_step(count), 0) << "one pass, where two were expected";
  EXPECT_EQ(whole_in_step(count), 3);
  come_to(count, kFromTheLast);
  EXPECT_EQ(whole_in_step(count), 3) << "one pass more than was expected";
}

TEST(WaveCount, WaitsForNothingThatNeverCame) {
  WaveCount count(three_waves(), 1);
  come_to(count, {5, 4, 0});
  count.learn(false);
  come_to(count, {5});
  EXPECT_EQ(count.whole(), 0);
  come_to(count, {4});
  EXPECT_EQ(count.whole(), 2) << "of the second nothing comes";
  come_to(count, {0});
  EXPECT_EQ(count.whole(), 3);
}

TEST(WaveCount, WaitsForWhatOneStepDidWithout) {
  WaveCount count(three_waves(), 1);
  whole_in_step(count);
  come_to(count, {5, 4, 2, 1, 0});
  count.learn(false);
  come_to(count, {5, 4, 2, 1, 0});
  EXPECT_EQ(count.whole(), 1);
  come_to(count, {3});
  EXPECT_EQ(count.whole(), 3);
}

// Frozen, perhaps: no wave behind it would go out before step() any more.
TEST(WaveCount, ForgetsWhatStaysAway) {
  WaveCount count(three_waves(), 1);
  whole_in_step(count);
  const auto whole_without_one = [&] {
    come_to(count, {5, 4, 2, 1, 0});
    const int whole = count.whole();
    count.learn(false);
    return whole;
  };
  for (int step = 0; step < 100; ++step) EXPECT_EQ(whole_without_one(), 1) << step;
  EXPECT_EQ(whole_without_one(), 3);
  EXPECT_EQ(whole_in_step(count, true), 3) << "it came behind its wave";
  for (int step = 0; step < 2; ++step) whole_in_step(count);
  come_to(count, {5, 4});
  EXPECT_EQ(count.whole(), 1) << "it is waited for again";
}

TEST(WaveCount, ForgetsNothingInStepsWithoutInputs) {
  WaveCount count(three_waves(), 1);
  whole_in_step(count);
  for (int step = 0; step < 200; ++step) count.learn(false);
  come_to(count, {5});
  EXPECT_EQ(count.whole(), 0);
}

TEST(WaveCount, ForgetsWhatWasDropped) {
  WaveCount count(three_waves(), 1);
  whole_in_step(count);
  come_to(count, {5, 4});
  count.drop();
  EXPECT_EQ(count.whole(), 0);
  come_to(count, {5});
  EXPECT_EQ(count.whole(), 0);
  EXPECT_EQ(whole_in_step(count), 3);
}

TEST(WaveCount, LearnsNothingWithoutInputs) {
  WaveCount count(three_waves(), 1);
  count.learn(false);
  EXPECT_EQ(whole_in_step(count), 0);
  count.learn(false);
  EXPECT_EQ(whole_in_step(count), 3);
}

// Longer and longer where it does not help.
TEST(WaveCount, PausesBehindStepsThatExchangedAgain) {
  WaveCount count(three_waves(), 1);
  EXPECT_EQ(whole_in_step(count), 0);
  EXPECT_EQ(whole_in_step(count, true), 3);
  for (int step = 0; step < 2; ++step) EXPECT_EQ(whole_in_step(count), 0) << step;
  EXPECT_EQ(whole_in_step(count, true), 3);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(whole_in_step(count), 0) << step;
  for (int step = 0; step < 3; ++step) EXPECT_EQ(whole_in_step(count), 3) << step;
  EXPECT_EQ(whole_in_step(count, true), 3);
  for (int step = 0; step < 2; ++step) EXPECT_EQ(whole_in_step(count), 0) << "as at first";
  EXPECT_EQ(whole_in_step(count), 3);
}

// A program each of whose steps would have to exchange again.
TEST(WaveCount, PausesForAThousandStepsAtMost) {
  WaveCount count(three_waves(), 1);
  int pause = 0, longest = 0;
  for (int step = 0; step < 5000; ++step) {
    come_to(count, kFromTheLast);
    const bool is_early = count.whole() > 0;
    count.learn(/*again=*/is_early);
    pause = is_early ? 0 : pause + 1;
    longest = std::max(longest, pause);
  }
  EXPECT_EQ(longest, 1024);
}

}  // namespace
}  // namespace lockstep::parallel
