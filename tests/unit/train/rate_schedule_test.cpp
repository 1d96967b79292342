#include "lockstep/train/rate_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/usage_error.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kEpochSteps = 4;

// The rate of each epoch.
std::vector<double> rates(const LrOptions& lr, std::int64_t epochs) {
  const Schedule schedule =
      make_schedule({.epochs = epochs, .lr = 1, .lr_schedule = lr}, kEpochSteps, epochs * kEpochSteps);
  std::vector<double> found;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    found.push_back(schedule(epoch * kEpochSteps + 1));
    EXPECT_EQ(schedule((epoch + 1) * kEpochSteps), found.back()) << "the same in the whole epoch";
  }
  return found;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12) << i;
}

TEST(TrainSchedule, ConstantUnlessAskedFor) { expect_near(rates({}, 3), {1, 1, 1}); }

TEST(TrainSchedule, CountsEpochs) {
  expect_near(rates({.scheduler = "steplr", .step_size = 2, .gamma = 0.5}, 5), {1, 1, 0.5, 0.5, 0.25});
  expect_near(rates({.scheduler = "multisteplr", .milestones = {1, 3}, .gamma = 0.2}, 5), {1, 0.2, 0.2, 0.04, 0.04});
  expect_near(rates({.scheduler = "exponentiallr", .gamma = 0.5}, 3), {1, 0.5, 0.25});
  expect_near(rates({.scheduler = "cosineannealinglr", .min = 0.2}, 2), {1, 0.6});
}

TEST(TrainSchedule, BeginsBehindTheWarmUp) {
  expect_near(rates({.scheduler = "cosineannealinglr", .warmup_epochs = 2, .warmup_decay = 0.1}, 4),
              {0.1, 0.1, 1, 0.5});
  expect_near(rates({.warmup_epochs = 2, .warmup_method = "linear", .warmup_decay = 0.5}, 4), {0.5, 0.75, 1, 1});
  expect_near(
      rates({.scheduler = "multisteplr", .milestones = {1}, .gamma = 0.5, .warmup_epochs = 2, .warmup_decay = 1}, 4),
      {1, 1, 1, 0.5});
  EXPECT_THAT(testing::usage_error([] { rates({.scheduler = "steplr", .warmup_epochs = 3}, 3); }),
              HasSubstr("--lr-warmup-epochs 3 of 3 epochs leaves none to --lr-scheduler steplr"));
}

// --max-steps 6 of 4 steps each is an epoch and a half.
TEST(TrainSchedule, AnEpochThatIsCutOffCountsWhole) {
  EXPECT_EQ(epochs_in_run({.max_steps = 6}, kEpochSteps, 6), 2);
  EXPECT_EQ(epochs_in_run({.epochs = 3, .max_steps = 6}, kEpochSteps, 6), 3);
  const Schedule cosine =
      make_schedule({.max_steps = 6, .lr = 1, .lr_schedule = {.scheduler = "cosineannealinglr"}}, kEpochSteps, 6);
  EXPECT_EQ(cosine(4), 1);
  EXPECT_NEAR(cosine(5), 0.5, 1e-12);
}

// 1 - min(1, (1 - decay) * batch * steps / epochs).
TEST(TrainSchedule, DecayOfTheAverageIsTorchvisions) {
  EXPECT_NEAR(ema_decay({.on = true, .steps = 32, .decay = 0.99998}, 1024, 600), 1 - 0.00002 * 1024 * 32 / 600, 1e-14);
  EXPECT_EQ(ema_decay({.on = true, .steps = 32, .decay = 0.9}, 1024, 1), 0);
}

}  // namespace
}  // namespace lockstep::train
