#include "lockstep/optim/schedules/composed.h"

#include <gtest/gtest.h>

#include "lockstep/optim/schedules/cosine.h"
#include "lockstep/optim/schedules/cyclic.h"
#include "lockstep/optim/schedules/factors.h"
#include "lockstep/optim/schedules/one_cycle.h"
#include "lockstep/optim/schedules/plateau.h"
#include "tests/support/usage_error.h"

namespace lockstep::optim {
namespace {

using testing::usage_error;

// ---- any schedule

TEST(Schedule, IsMadeOfAnySchedule) {
  const Schedule step = StepLR{.step_size = 2, .gamma = 0.5};
  const Schedule copy = step;
  EXPECT_EQ(copy.at(8, 5).lr, 2);
  EXPECT_EQ(copy.ratio(4), 0.5);
  ASSERT_NE(copy.target<StepLR>(), nullptr);
  EXPECT_EQ(copy.target<StepLR>()->step_size, 2);
  EXPECT_EQ(copy.target<ConstantLR>(), nullptr);
}

TEST(Schedule, IsMadeOfAFunction) {
  const Schedule number = [](double base_lr, std::uint64_t t) { return base_lr / double(1 + t); };
  EXPECT_EQ(number.at(8, 3).lr, 2);
  EXPECT_FALSE(number.at(8, 3).momentum);
  EXPECT_FALSE(number.ratio(1));
  const Schedule rate = [](double base_lr, std::uint64_t) { return Rate{.lr = base_lr, .momentum = 0.5}; };
  EXPECT_EQ(rate.at(8, 3).momentum, 0.5);
}

struct Halving {  // a schedule of one's own
  Rate at(double base_lr, std::uint64_t t) const { return {.lr = base_lr / double(1 << t)}; }
  double ratio(std::uint64_t) const { return 0.5; }
};

TEST(Schedule, OfOnesOwnIsChainedByItsRatio) {
  const ChainedScheduler chain{.schedulers = {Halving{}, StepLR{.step_size = 2, .gamma = 0.1}}};
  EXPECT_DOUBLE_EQ(chain.at(8, 3).lr, 0.1);
}

TEST(Schedule, RefusesWhatItsOptionsAre) {
  EXPECT_EQ(usage_error([] { Schedule schedule = StepLR{.step_size = -1}; }),
            "StepLR: step_size is -1, must be at least 1");
  EXPECT_THROW(Schedule(ChainedScheduler{}), UsageError);
}

// The same at any t, in any order, however often: nothing is remembered.
TEST(Schedule, IsPure) {
  const Schedule all[] = {
      SequentialLR{.schedulers = {LinearLR{}, CosineAnnealingLR{.T_max = 9}}, .milestones = {5}},
      ChainedScheduler{.schedulers = {CosineAnnealingLR{.T_max = 9, .eta_min = 0.1}, ExponentialLR{.gamma = 0.9}}},
      OneCycleLR{.max_lr = 1, .total_steps = 40}, CyclicLR{.base_lr = 0.1, .max_lr = 1, .step_size_up = 7},
      MultiplicativeLR{[](std::uint64_t n) { return n % 2 == 0 ? 0.9 : 1.0; }}};
  for (const Schedule& schedule : all) {
    std::vector<Rate> upwards;
    for (std::uint64_t t = 0; t <= 40; ++t) upwards.push_back(schedule.at(0.5, t));
    for (std::uint64_t t = 41; t-- > 0;) {
      EXPECT_EQ(schedule.at(0.5, t).lr, upwards[t].lr) << t;
      EXPECT_EQ(schedule.at(0.5, t).momentum, upwards[t].momentum) << t;
    }
  }
}

// ---- one after the other

TEST(Sequential, EachMemberCountsFromItsMilestone) {
  const Schedule schedule =
      SequentialLR{.schedulers = {LinearLR{.start_factor = 0.5, .total_iters = 4}, StepLR{.step_size = 3, .gamma = 0.5},
                                  ConstantLR{.factor = 0.25, .total_iters = 2}},
                   .milestones = {4, 10}};
  const double wanted[] = {4, 5, 6, 7, 8, 8, 8, 4, 4, 4, 2, 2, 8, 8};
  for (std::uint64_t t = 0; t < std::size(wanted); ++t) EXPECT_DOUBLE_EQ(schedule.at(8, t).lr, wanted[t]) << t;
}

TEST(Sequential, MultiplicativeGoesOnFromTheRateThatItFinds) {
  const auto factor = [](std::uint64_t n) { return n == 0 ? 3.0 : 0.5; };
  const Schedule schedule = SequentialLR{
      .schedulers = {ConstantLR{.factor = 0.25, .total_iters = 9}, MultiplicativeLR{factor}}, .milestones = {2}};
  EXPECT_EQ(schedule.at(16, 1).lr, 4);
  EXPECT_EQ(schedule.at(16, 2).lr, 12);
  EXPECT_EQ(schedule.at(16, 4).lr, 3);
}

TEST(Sequential, AMembersMomentumStaysBeforeAndAfterItsTime) {
  const CyclicLR cyclic{.base_lr = 0.1, .max_lr = 1, .step_size_up = 4, .base_momentum = 0.5, .max_momentum = 0.75};
  const Schedule schedule =
      SequentialLR{.schedulers = {LinearLR{}, cyclic, ExponentialLR{.gamma = 0.9}}, .milestones = {5, 8}};
  EXPECT_EQ(schedule.at(1, 0).momentum, 0.75);
  EXPECT_EQ(schedule.at(1, 7).momentum, cyclic.at(1, 2).momentum);
  EXPECT_EQ(schedule.at(1, 8).momentum, cyclic.at(1, 2).momentum);
  EXPECT_EQ(schedule.at(1, 50).momentum, cyclic.at(1, 2).momentum);
}

// As in Python, where making a OneCycleLR changes the optimizer's first rate.
TEST(Sequential, AWarmUpBeforeAOneCycleStartsFromItsFirstRate) {
  const Schedule schedule = SequentialLR{
      .schedulers = {ConstantLR{.factor = 0.5, .total_iters = 9}, OneCycleLR{.max_lr = 1, .total_steps = 20}},
      .milestones = {5}};
  EXPECT_DOUBLE_EQ(schedule.at(77, 0).lr, 0.5 / 25);
}

TEST(Sequential, RefusesMilestonesThatDoNotFit) {
  const std::vector<Schedule> two = {LinearLR{}, ConstantLR{}};
  EXPECT_EQ(usage_error([&] { check(SequentialLR{.schedulers = two}); }),
            "SequentialLR: the number of milestones is 0, must be one less than there are schedulers");
  EXPECT_THROW(check(SequentialLR{.schedulers = two, .milestones = {1, 2}}), UsageError);
  EXPECT_EQ(usage_error([&] { check(SequentialLR{.schedulers = two, .milestones = {0}}); }),
            "SequentialLR: a milestone is 0, must be above 0 and those before it");
  EXPECT_THROW(check(SequentialLR{.schedulers = {LinearLR{}, LinearLR{}, LinearLR{}}, .milestones = {5, 5}}),
               UsageError);
  EXPECT_THROW(check(SequentialLR{}), UsageError);
}

// ---- all at once

TEST(Chained, MembersMultiply) {
  const Schedule schedule = ChainedScheduler{
      .schedulers = {ConstantLR{.factor = 0.25, .total_iters = 3}, MultiStepLR{.milestones = {2, 5}, .gamma = 0.5}}};
  const double wanted[] = {2, 2, 1, 4, 4, 2};
  for (std::uint64_t t = 0; t < std::size(wanted); ++t) EXPECT_DOUBLE_EQ(schedule.at(8, t).lr, wanted[t]) << t;
}

// eta_min 0 has a closed form until T_max, any other one is followed from step to step: they meet.
TEST(Chained, CosineAnnealingMovesWhatItFinds) {
  const auto chain = [](double eta_min) {
    return Schedule(ChainedScheduler{
        .schedulers = {LinearLR{.total_iters = 20}, CosineAnnealingLR{.T_max = 50, .eta_min = eta_min}}});
  };
  for (std::uint64_t t = 0; t <= 50; ++t) EXPECT_NEAR(chain(0).at(1, t).lr, chain(1e-15).at(1, t).lr, 1e-13) << t;
  EXPECT_NEAR(chain(0.1).at(1, 50).lr, 0.1, 1e-15);
}

TEST(Chained, WhatSetsTheRateForgetsWhatStandsBeforeIt) {
  const LambdaLR lambda{[](std::uint64_t t) { return 1.0 / double(1 + t); }};
  const Schedule schedule =
      ChainedScheduler{.schedulers = {ExponentialLR{.gamma = 0.5}, lambda, StepLR{.step_size = 3, .gamma = 0.5}}};
  EXPECT_EQ(schedule.at(12, 2).lr, 4);
  EXPECT_EQ(schedule.at(12, 3).lr, 1.5);
  EXPECT_DOUBLE_EQ(schedule.at(12, 4).lr, 2.4);
}

TEST(Chained, TheLastMomentumCounts) {
  const CyclicLR first{.base_lr = 0.1, .max_lr = 1}, second{.base_lr = 0.1, .max_lr = 1, .max_momentum = 0.95};
  EXPECT_EQ(Schedule(ChainedScheduler{.schedulers = {first, second, LinearLR{}}}).at(1, 0).momentum, 0.95);
}

TEST(Composed, RefuseMembersThatPythonCannotCompose) {
  const Schedule sequence = SequentialLR{.schedulers = {LinearLR{}}}, chain = ChainedScheduler{{LinearLR{}}};
  const Schedule one_cycle = OneCycleLR{.max_lr = 1, .total_steps = 9};
  const Schedule cyclic = CyclicLR{.base_lr = 0, .max_lr = 1};
  EXPECT_EQ(usage_error([&] {
              check(ChainedScheduler{{LinearLR{}, sequence}});
            }),
            "ChainedScheduler: a member is a SequentialLR, must be a schedule by itself");
  EXPECT_THROW(check(ChainedScheduler{{chain}}), UsageError);
  EXPECT_THROW(check(SequentialLR{.schedulers = {chain}}), UsageError);
  EXPECT_EQ(usage_error([&] {
              check(SequentialLR{{one_cycle, cyclic}, {5}});
            }),
            "SequentialLR: a member is a OneCycleLR, must be the only CyclicLR or OneCycleLR of the list");
  EXPECT_THROW(check(ChainedScheduler{{one_cycle, one_cycle}}), UsageError);
  check(ChainedScheduler{{one_cycle, LinearLR{}}});
  EXPECT_EQ(usage_error([&] {
              check(ChainedScheduler{{ReduceLROnPlateau{}, LinearLR{}}});
            }),
            "ChainedScheduler: a member is a ReduceLROnPlateau, must be a function of the step");
  EXPECT_THROW(check(SequentialLR{{LinearLR{}, ReduceLROnPlateau{}}, {5}}), UsageError);
}

}  // namespace
}  // namespace lockstep::optim
