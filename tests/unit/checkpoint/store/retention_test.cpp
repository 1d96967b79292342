#include "lockstep/checkpoint/store/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Stored> steps(std::vector<std::uint64_t> all, std::uint64_t good) {
  std::vector<Stored> stored;
  for (const std::uint64_t step : all) stored.push_back({.step = step, .good = step == good});
  return stored;
}

TEST(Retention, KeepsTheNewest) {
  EXPECT_THAT(surplus(steps({10, 20, 30, 40}, 40), {.keep = 2}), ElementsAre(10, 20));
  EXPECT_THAT(surplus(steps({40, 10, 30, 20}, 40), {.keep = 3}), ElementsAre(10));
  EXPECT_THAT(surplus(steps({10, 20}, 20), {.keep = 3}), IsEmpty());
}

TEST(Retention, WithoutANumberAllStay) { EXPECT_THAT(surplus(steps({10, 20, 30}, 30), {}), IsEmpty()); }

// After going back to step 10, of which 20 is the continuation, 90 is nobody's any more.
TEST(Retention, CountsFromWhereTheJobIs) {
  EXPECT_THAT(surplus(steps({10, 20, 80, 90}, 20), {.keep = 2}), ElementsAre(80, 90));
}

TEST(Retention, KeepsTheBestBesideThem) {
  std::vector<Stored> all = steps({10, 20, 30, 40}, 40);
  all[0].metric = 0.9;
  all[1].metric = 0.5;
  all[2].metric = 0.9;
  all[3].metric = std::nan("");
  EXPECT_THAT(surplus(all, {.keep = 1, .best = 1}), ElementsAre(20, 30)) << "of equal ones the earlier";
  EXPECT_THAT(surplus(all, {.keep = 1, .best = 2}), ElementsAre(20));
  EXPECT_THAT(surplus(all, {.keep = 1, .best = 1, .smaller_is_better = true}), ElementsAre(10, 30));
  EXPECT_EQ(best_of(all, false), 10u);
  EXPECT_EQ(best_of(all, true), 20u);
  EXPECT_EQ(best_of(steps({1, 2}, 2), true), std::nullopt);
}

TEST(Retention, KeepsWhatMayBeTheBest) {
  std::vector<Stored> all = steps({10, 20, 30, 40}, 40);
  all[1].metric = 0.5;
  all[0].is_readable = false;
  EXPECT_THAT(surplus(all, {.keep = 1, .best = 1}), ElementsAre(30));
  EXPECT_THAT(surplus(all, {.keep = 1}), ElementsAre(20, 30));
}

TEST(Retention, NeverRemovesTheOnlyGoodOne) {
  EXPECT_THAT(surplus(steps({10, 20, 30}, 0), {.keep = 1}), IsEmpty()) << "none is known to be good";
  EXPECT_THAT(surplus(steps({10, 20, 30}, 10), {.keep = 1}), ElementsAre(20, 30));
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::vector<Stored> all;
    for (std::uint64_t step = 1; step <= 1 + random() % 8; ++step) {
      all.push_back({.step = step, .good = random() % 3 == 0});
      if (random() % 2 == 0) all.back().metric = double(random() % 4);
    }
    std::ranges::shuffle(all, random);
    const auto gone = surplus(all, {.keep = int(random() % 4), .best = int(random() % 3)});
    const auto is_gone = [&](const Stored& one) { return std::ranges::find(gone, one.step) != gone.end(); };
    const auto is_good_and_stays = [&](const Stored& one) { return one.good && !is_gone(one); };
    EXPECT_TRUE(gone.empty() || std::ranges::any_of(all, is_good_and_stays));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
