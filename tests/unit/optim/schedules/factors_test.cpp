#include "lockstep/optim/schedules/factors.h"

#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::optim {
namespace {

using testing::usage_error;

TEST(Factors, ConstantUntilTotalIters) {
  const ConstantLR schedule{.factor = 0.5, .total_iters = 4};
  EXPECT_DOUBLE_EQ(schedule.at(0.2, 0).lr, 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(0.2, 3).lr, 0.1);
  EXPECT_EQ(schedule.at(0.2, 4).lr, 0.2);
  EXPECT_FALSE(schedule.at(0.2, 4).momentum);
}

TEST(Factors, FromZeroNoFactorLeadsBack) {
  const ConstantLR schedule{.factor = 0, .total_iters = 4};
  EXPECT_EQ(schedule.at(0.2, 3).lr, 0);
  EXPECT_EQ(usage_error([&] { (void)schedule.at(0.2, 4); }),
            "ConstantLR: factor is 0, must be above 0 where t reaches total_iters");
}

TEST(Factors, LinearWarmUpReachesTheBaseRateAtTotalIters) {
  const LinearLR schedule{.start_factor = 0.2, .total_iters = 4};
  EXPECT_DOUBLE_EQ(schedule.at(10, 0).lr, 2);
  EXPECT_DOUBLE_EQ(schedule.at(10, 1).lr, 4);
  EXPECT_DOUBLE_EQ(schedule.at(10, 3).lr, 8);
  EXPECT_DOUBLE_EQ(schedule.at(10, 4).lr, 10);
  EXPECT_DOUBLE_EQ(schedule.at(10, 1000).lr, 10);
}

TEST(Factors, StepFallsAtMultiplesOfItsSize) {
  const StepLR schedule{.step_size = 30, .gamma = 0.1};
  EXPECT_EQ(schedule.at(1, 29).lr, 1);
  EXPECT_DOUBLE_EQ(schedule.at(1, 30).lr, 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1, 89).lr, 0.01);
}

TEST(Factors, AMilestoneThatIsThereTwiceCountsTwice) {
  const MultiStepLR schedule{.milestones = {0, 3, 3, 9}, .gamma = 0.5};
  EXPECT_EQ(schedule.at(8, 0).lr, 4);
  EXPECT_EQ(schedule.at(8, 2).lr, 4);
  EXPECT_EQ(schedule.at(8, 3).lr, 1);
  EXPECT_EQ(schedule.at(8, 9).lr, 0.5);
  EXPECT_EQ(schedule.ratio(3), 0.25);
  EXPECT_EQ(schedule.ratio(4), 1);
}

TEST(Factors, ExponentialAndPolynomial) {
  EXPECT_EQ((ExponentialLR{.gamma = 0.5}).at(1, 10).lr, 1 / 1024.0);
  const PolynomialLR schedule{.total_iters = 4, .power = 2};
  EXPECT_EQ(schedule.at(16, 0).lr, 16);
  EXPECT_EQ(schedule.at(16, 1).lr, 9);
  EXPECT_EQ(schedule.at(16, 4).lr, 0);
  EXPECT_EQ(schedule.at(16, 5).lr, 0);
}

TEST(Factors, LambdaSetsAndMultiplicativeMultiplies) {
  const auto half = [](std::uint64_t t) { return t == 0 ? 3.0 : 0.5; };
  EXPECT_EQ(LambdaLR{half}.at(8, 0).lr, 24);
  EXPECT_EQ(LambdaLR{half}.at(8, 3).lr, 4);
  EXPECT_EQ(MultiplicativeLR{half}.at(8, 0).lr, 8) << "the first step is 1";
  EXPECT_EQ(MultiplicativeLR{half}.at(8, 3).lr, 1);
}

// What chains and sequences rest on.
template <class S>
void expect_ratios_to_be_of_neighbours(const S& schedule) {
  for (std::uint64_t n = 1; n < 30; ++n)
    EXPECT_NEAR(schedule.at(1, n - 1).lr * schedule.ratio(n), schedule.at(1, n).lr, 1e-14) << n;
}

TEST(Factors, TheRatioLeadsFromOneStepToTheNext) {
  expect_ratios_to_be_of_neighbours(ConstantLR{.total_iters = 7});
  expect_ratios_to_be_of_neighbours(LinearLR{.total_iters = 12});
  expect_ratios_to_be_of_neighbours(LinearLR{.start_factor = 1, .end_factor = 0, .total_iters = 12});
  expect_ratios_to_be_of_neighbours(StepLR{.step_size = 4});
  expect_ratios_to_be_of_neighbours(MultiStepLR{.milestones = {2, 9, 9}});
  expect_ratios_to_be_of_neighbours(ExponentialLR{.gamma = 0.9});
  expect_ratios_to_be_of_neighbours(PolynomialLR{.total_iters = 12, .power = 1.5});
  expect_ratios_to_be_of_neighbours(MultiplicativeLR{[](std::uint64_t n) { return 1 + 0.1 * double(n % 3); }});
}

TEST(Factors, ErrorsNameOptionValueAndWhatWouldBeRight) {
  EXPECT_EQ(usage_error([] { check(StepLR{}); }), "StepLR: step_size is 0, must be at least 1");
  EXPECT_EQ(usage_error([] { check(ExponentialLR{}); }),
            "ExponentialLR: gamma is not given, must be finite and at least 0");
  EXPECT_EQ(usage_error([] { check(LinearLR{.start_factor = 0}); }), "LinearLR: start_factor is 0, must be in (0, 1]");
  EXPECT_EQ(usage_error([] { check(LinearLR{.end_factor = 1.5}); }), "LinearLR: end_factor is 1.5, must be in [0, 1]");
  EXPECT_EQ(usage_error([] {
              check(MultiStepLR{.milestones = {30, 20}});
            }),
            "MultiStepLR: a milestone is 20, must be at least 0 and those before it");
  EXPECT_EQ(usage_error([] { check(LambdaLR{}); }), "LambdaLR: lr_lambda is not given, must be a function of t");
}

TEST(Factors, RefuseOptionsOutOfRange) {
  EXPECT_THROW(check(ConstantLR{.factor = 1.1}), UsageError);
  EXPECT_THROW(check(ConstantLR{.factor = kNotGiven}), UsageError);
  EXPECT_THROW(check(ConstantLR{.total_iters = 0}), UsageError);
  EXPECT_THROW(check(LinearLR{.total_iters = 0}), UsageError);
  EXPECT_THROW(check(StepLR{.step_size = 3, .gamma = -0.1}), UsageError);
  EXPECT_THROW(check(MultiStepLR{.milestones = {-1}}), UsageError);
  EXPECT_THROW(check(PolynomialLR{.total_iters = 0}), UsageError);
  EXPECT_THROW(check(PolynomialLR{.power = -1}), UsageError);
  EXPECT_THROW(check(MultiplicativeLR{}), UsageError);
  EXPECT_THROW((void)StepLR{}.at(0.1, 1), UsageError) << "at() divides by it";
}

}  // namespace
}  // namespace lockstep::optim
