#include "lockstep/optim/schedules/plateau.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/usage_error.h"

namespace lockstep::optim {
namespace {

using testing::usage_error;

TEST(Plateau, ReducesBehindMoreBadMetricsThanItsPatience) {
  ReduceLROnPlateau plateau{.factor = 0.5, .patience = 2};
  EXPECT_FALSE(plateau.step(1.0)) << "the first is the best";
  EXPECT_FALSE(plateau.step(1.0));
  EXPECT_FALSE(plateau.step(1.5));
  EXPECT_EQ(plateau.at(0.8).lr, 0.8);
  EXPECT_TRUE(plateau.step(1.0));
  EXPECT_EQ(plateau.at(0.8).lr, 0.4);
  EXPECT_EQ(plateau.at(0.2).lr, 0.1) << "of any base rate";
  EXPECT_EQ(Schedule(plateau).at(0.2, 7).lr, 0.1) << "as a schedule, at any t";
  EXPECT_FALSE(plateau.step(0.5)) << "better";
  EXPECT_EQ(plateau.state.best, 0.5);
  EXPECT_EQ(plateau.state.num_bad_epochs, 0);
}

TEST(Plateau, TheThresholdIsAPartOrADifference) {
  ReduceLROnPlateau part{.patience = 0, .threshold = 0.1};
  part.step(10);
  EXPECT_TRUE(part.step(9));
  EXPECT_FALSE(part.step(8.9));
  ReduceLROnPlateau difference{.mode = ReduceLROnPlateau::Mode::max,
                               .patience = 0,
                               .threshold = 2,
                               .threshold_mode = ReduceLROnPlateau::ThresholdMode::abs};
  difference.step(10);
  EXPECT_TRUE(difference.step(12));
  EXPECT_FALSE(difference.step(12.5));
}

TEST(Plateau, NoMetricIsBadInTheCooldown) {
  ReduceLROnPlateau plateau{.patience = 0, .cooldown = 2};
  plateau.step(1);
  const bool reduced[] = {plateau.step(1), plateau.step(1), plateau.step(1), plateau.step(1)};
  EXPECT_TRUE(reduced[0]);
  EXPECT_FALSE(reduced[1]);
  EXPECT_FALSE(reduced[2]);
  EXPECT_TRUE(reduced[3]);
}

TEST(Plateau, StopsAtMinLrAndLeavesOutWhatIsNoMoreThanEps) {
  ReduceLROnPlateau floor{.factor = 0.5, .patience = 0, .min_lr = 0.15};
  ReduceLROnPlateau coarse{.factor = 0.5, .patience = 0, .eps = 0.25};
  for (int i = 0; i < 5; ++i) (void)floor.step(1), (void)coarse.step(1);
  EXPECT_EQ(floor.at(0.8).lr, 0.15);
  EXPECT_EQ(floor.at(0.1).lr, 0.1) << "no reduction raises a rate";
  EXPECT_EQ(coarse.at(1).lr, 0.5) << "0.5 to 0.25 is eps, no more";
}

TEST(Plateau, WhatIsNoNumberIsBad) {
  ReduceLROnPlateau plateau{.patience = 1};
  EXPECT_FALSE(plateau.step(NAN));
  EXPECT_TRUE(plateau.step(NAN));
  EXPECT_FALSE(plateau.step(3));
  EXPECT_EQ(plateau.state.best, 3);
}

// What a program keeps with ddp.state().keep() is all that there is to know.
TEST(Plateau, GoesOnAlikeFromTheBytesOfItsState) {
  const ReduceLROnPlateau options{.factor = 0.7, .patience = 1, .cooldown = 2};
  const auto metric = [](int i) { return std::abs(std::sin(double(i * i))) + 1.0 / (1 + i); };
  ReduceLROnPlateau whole = options;
  std::array<std::byte, sizeof(PlateauState)> committed{};
  for (int i = 0; i < 60; ++i) {
    ReduceLROnPlateau restarted = options;
    if (i > 0) std::memcpy(&restarted.state, committed.data(), committed.size());
    ASSERT_EQ(restarted.at(1).lr, whole.at(1).lr) << i;
    ASSERT_EQ(restarted.step(metric(i)), whole.step(metric(i))) << i;
    std::memcpy(committed.data(), &restarted.state, committed.size());
  }
  EXPECT_GT(whole.state.reductions, 3);
}

TEST(Plateau, RefusesOptionsOutOfRangeAndStaysAsItIs) {
  ReduceLROnPlateau plateau{.factor = 1};
  EXPECT_EQ(usage_error([&] { plateau.step(1); }), "ReduceLROnPlateau: factor is 1, must be in [0, 1)");
  EXPECT_TRUE(std::isnan(plateau.state.best));
  EXPECT_THROW((void)plateau.at(1), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.factor = -0.5}), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.patience = -1}), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.threshold = NAN}), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.cooldown = -1}), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.min_lr = -1}), UsageError);
  EXPECT_THROW(check(ReduceLROnPlateau{.eps = -1}), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
