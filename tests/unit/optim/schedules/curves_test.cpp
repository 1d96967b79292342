#include <gtest/gtest.h>

#include "lockstep/optim/schedules/cosine.h"
#include "lockstep/optim/schedules/cyclic.h"
#include "lockstep/optim/schedules/one_cycle.h"
#include "tests/support/usage_error.h"

namespace lockstep::optim {
namespace {

using testing::usage_error;

TEST(CosineAnnealing, FallsToEtaMinAndRisesAgain) {
  const CosineAnnealingLR schedule{.T_max = 10, .eta_min = 0.25};
  EXPECT_EQ(schedule.at(1.25, 0).lr, 1.25);
  EXPECT_NEAR(schedule.at(1.25, 5).lr, 0.75, 1e-15);
  EXPECT_EQ(schedule.at(1.25, 10).lr, 0.25);
  EXPECT_NEAR(schedule.at(1.25, 15).lr, 0.75, 1e-14);
  EXPECT_NEAR(schedule.at(1.25, 20).lr, 1.25, 1e-14);
  EXPECT_NEAR(schedule.at(1.25, 30).lr, 0.25, 1e-14);
  EXPECT_NEAR(schedule.at(1.25, 40).lr, 1.25, 1e-13);
}

TEST(CosineAnnealing, NextLeadsFromOneStepToTheOther) {
  const CosineAnnealingLR schedule{.T_max = 7, .eta_min = 0.01};
  for (std::uint64_t n = 1; n < 60; ++n)
    EXPECT_NEAR(schedule.next(schedule.at(1, n - 1).lr, 1, n), schedule.at(1, n).lr, 1e-12) << n;
}

TEST(WarmRestarts, EachCycleIsTMultTimesAsLong) {
  const CosineAnnealingWarmRestarts schedule{.T_0 = 4, .T_mult = 2};
  for (const std::uint64_t begin : {0, 4, 12, 28, 60}) EXPECT_EQ(schedule.at(1, begin).lr, 1) << begin;
  EXPECT_NEAR(schedule.at(1, 2).lr, 0.5, 1e-15);
  EXPECT_NEAR(schedule.at(1, 8).lr, 0.5, 1e-15);
  EXPECT_LT(schedule.at(1, 27).lr, 0.02);
  EXPECT_EQ((CosineAnnealingWarmRestarts{.T_0 = 4}).at(1, 4'000'000'004).lr, 1);
}

TEST(WarmRestarts, TheLengthOfACycleDoesNotWrapRound) {
  const CosineAnnealingWarmRestarts schedule{.T_0 = 4, .T_mult = INT64_MAX};
  EXPECT_EQ(schedule.at(1, 4).lr, 1);
  EXPECT_NEAR(schedule.at(1, 1'000'000).lr, 1, 1e-12);
}

TEST(Cyclic, GoesUpAndDownMomentumTheOtherWay) {
  const CyclicLR schedule{.base_lr = 1, .max_lr = 5, .step_size_up = 4, .step_size_down = 2};
  EXPECT_EQ(schedule.at(77, 0).lr, 1) << "the optimizer's rate plays no part";
  EXPECT_NEAR(schedule.at(77, 1).lr, 2, 1e-15);
  EXPECT_NEAR(schedule.at(77, 4).lr, 5, 1e-14);
  EXPECT_NEAR(schedule.at(77, 5).lr, 3, 1e-14);
  EXPECT_NEAR(schedule.at(77, 6).lr, 1, 1e-14);
  EXPECT_NEAR(*schedule.at(77, 0).momentum, 0.9, 1e-15);
  EXPECT_NEAR(*schedule.at(77, 4).momentum, 0.8, 1e-15);
}

TEST(Cyclic, ModesScaleTheHeight) {
  CyclicLR schedule{.base_lr = 0, .max_lr = 8, .step_size_up = 2, .mode = CyclicLR::Mode::triangular2};
  EXPECT_EQ(schedule.at(1, 2).lr, 8);
  EXPECT_EQ(schedule.at(1, 6).lr, 4);
  EXPECT_EQ(schedule.at(1, 10).lr, 2);
  schedule.mode = CyclicLR::Mode::exp_range;
  schedule.gamma = 0.5;
  EXPECT_EQ(schedule.at(1, 2).lr, 2);
  schedule.scale_fn = [](double x) { return 1 / x; };
  EXPECT_EQ(schedule.at(1, 6).lr, 4) << "cycle 2";
  schedule.scale_mode = CyclicLR::ScaleMode::iterations;
  EXPECT_NEAR(schedule.at(1, 6).lr, 8 / 6.0, 1e-15);
  schedule.cycle_momentum = false;
  EXPECT_FALSE(schedule.at(1, 6).momentum);
}

TEST(OneCycle, RisesAndFalls) {
  const OneCycleLR schedule{.max_lr = 1, .total_steps = 11, .pct_start = 5 / 11.0, .div_factor = 10};
  EXPECT_NEAR(schedule.at(77, 0).lr, 0.1, 1e-15);
  EXPECT_NEAR(schedule.at(77, 2).lr, 0.55, 1e-15);
  EXPECT_NEAR(schedule.at(77, 4).lr, 1, 1e-15);
  EXPECT_NEAR(schedule.at(77, 10).lr, 1e-5, 1e-15);
  EXPECT_NEAR(*schedule.at(77, 0).momentum, 0.95, 1e-15);
  EXPECT_NEAR(*schedule.at(77, 4).momentum, 0.85, 1e-15);
  EXPECT_NEAR(*schedule.at(77, 10).momentum, 0.95, 1e-15);
}

TEST(OneCycle, ThreePhasesComeBackBeforeTheEnd) {
  const OneCycleLR schedule{.max_lr = 1,
                            .epochs = 4,
                            .steps_per_epoch = 5,
                            .pct_start = 0.25,
                            .anneal_strategy = OneCycleLR::Anneal::linear,
                            .div_factor = 10,
                            .three_phase = true};
  EXPECT_NEAR(schedule.at(1, 4).lr, 1, 1e-15);
  EXPECT_NEAR(schedule.at(1, 6).lr, 0.55, 1e-15);
  EXPECT_NEAR(schedule.at(1, 8).lr, 0.1, 1e-15);
  EXPECT_NEAR(schedule.at(1, 19).lr, 1e-5, 1e-15);
  EXPECT_NEAR(*schedule.at(1, 8).momentum, 0.95, 1e-15);
  EXPECT_NEAR(*schedule.at(1, 15).momentum, 0.95, 1e-15);
}

TEST(OneCycle, BeyondItsStepsIsAnError) {
  const OneCycleLR schedule{.max_lr = 1, .total_steps = 10};
  (void)schedule.at(1, 10);
  EXPECT_EQ(usage_error([&] { (void)schedule.at(1, 11); }),
            "OneCycleLR: t is 11, must be at most the 10 steps of the schedule");
}

TEST(OneCycle, APhaseWithoutLengthIsAnError) {
  EXPECT_EQ(usage_error([] { check(OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = 0.1}); }),
            "OneCycleLR: pct_start is 0.1, must be a part of total_steps that gives each phase a length");
  EXPECT_THROW((void)(OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = 1}).at(1, 10), UsageError);
}

TEST(Curves, RefuseOptionsOutOfRange) {
  EXPECT_EQ(usage_error([] { check(CosineAnnealingLR{}); }), "CosineAnnealingLR: T_max is 0, must be at least 1");
  EXPECT_THROW(check(CosineAnnealingLR{.T_max = 1, .eta_min = kNotGiven}), UsageError);
  EXPECT_THROW(check(CosineAnnealingWarmRestarts{}), UsageError);
  EXPECT_THROW(check(CosineAnnealingWarmRestarts{.T_0 = 1, .T_mult = 0}), UsageError);
  EXPECT_EQ(usage_error([] { check(CyclicLR{.max_lr = 1}); }),
            "CyclicLR: base_lr is not given, must be finite and at least 0");
  EXPECT_THROW(check(CyclicLR{.base_lr = 1}), UsageError);
  EXPECT_THROW(check(CyclicLR{.base_lr = 0, .max_lr = 1, .step_size_up = 0}), UsageError);
  EXPECT_THROW(check(CyclicLR{.base_lr = 0, .max_lr = 1, .step_size_down = -1}), UsageError);
  EXPECT_THROW(check(CyclicLR{.base_lr = 0, .max_lr = 1, .max_momentum = -1}), UsageError);
  EXPECT_EQ(usage_error([] { check(OneCycleLR{.max_lr = 1, .epochs = 3}); }),
            "OneCycleLR: steps_per_epoch is 0, must be at least 1, or total_steps given");
  EXPECT_THROW(check(OneCycleLR{.total_steps = 10}), UsageError);
  EXPECT_THROW(check(OneCycleLR{.max_lr = 1, .total_steps = -1}), UsageError);
  EXPECT_THROW(check(OneCycleLR{.max_lr = 1, .total_steps = 10, .pct_start = -0.1}), UsageError);
  EXPECT_THROW(check(OneCycleLR{.max_lr = 1, .total_steps = 10, .div_factor = 0}), UsageError);
  EXPECT_THROW(check(OneCycleLR{.max_lr = 1, .total_steps = 10, .final_div_factor = 0}), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
