#include "lockstep/train/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 60000;

std::string plan_refusal(const Options& options, int world_size, std::int64_t samples = kSamples) {
  try {
    plan_batch(options, world_size, samples);
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(BatchPlan, DefaultsFollowTheWorld) {
  EXPECT_EQ(plan_batch({}, 1, kSamples), (BatchPlan{.global_batch = 100, .shards = 1, .shard_batch = 100}));
  EXPECT_EQ(plan_batch({}, 3, kSamples), (BatchPlan{.global_batch = 300, .shards = 3, .shard_batch = 100}));
  EXPECT_EQ(plan_batch({.batch_size = 32}, 2, kSamples), (BatchPlan{64, 2, 32}));
}

TEST(BatchPlan, FixedFlagsGiveTheSamePlanInEveryWorld) {
  const Options options{.global_batch_size = 240, .logical_shards = 6};
  for (int world = 1; world <= 6; ++world) EXPECT_EQ(plan_batch(options, world, kSamples), (BatchPlan{240, 6, 40}));
}

TEST(BatchPlan, BothBatchFlagsMustAgree) {
  EXPECT_EQ(plan_batch({.batch_size = 50, .global_batch_size = 100}, 2, kSamples), (BatchPlan{100, 2, 50}));
  for (const std::int64_t other : {90, 110}) {
    const std::string message = plan_refusal({.batch_size = 50, .global_batch_size = other}, 2);
    EXPECT_THAT(message, HasSubstr("is 100"));
    EXPECT_THAT(message, HasSubstr("is " + std::to_string(other)));
  }
}

// The steps of four processes, on two: the same shards, so the same bits.
TEST(BatchPlan, AccumulatedBatchesAreShards) {
  EXPECT_EQ(plan_batch({.batch_size = 25, .grad_accum_steps = 2}, 2, kSamples), (BatchPlan{100, 4, 25}));
  EXPECT_EQ(plan_batch({.batch_size = 25}, 4, kSamples), (BatchPlan{100, 4, 25}));
  EXPECT_EQ(plan_batch({.batch_size = 25, .logical_shards = 2, .grad_accum_steps = 2}, 2, kSamples),
            (BatchPlan{100, 2, 50}));
  EXPECT_THAT(plan_refusal({.batch_size = 25, .global_batch_size = 50, .grad_accum_steps = 2}, 2),
              HasSubstr("--batch-size 25 x 2 processes x 2 --grad-accum-steps is 100, but --global-batch-size is 50"));
}

TEST(BatchPlan, EveryRankNeedsAShard) {
  EXPECT_THAT(plan_refusal({.logical_shards = 2}, 3), HasSubstr("--logical-shards 2 is less than the 3 processes"));
  EXPECT_THAT(plan_refusal({}, 0), HasSubstr("world of 0"));
}

TEST(BatchPlan, SyncBatchNormWantsOneShardPerProcess) {
  EXPECT_EQ(plan_batch({.batch_size = 25, .sync_bn = true}, 4, kSamples), (BatchPlan{100, 4, 25}));
  EXPECT_EQ(
      plan_refusal({.batch_size = 25, .grad_accum_steps = 2, .sync_bn = true}, 2),
      "--sync-bn needs one shard per process, but there are 4 for 2: --logical-shards 2, and --grad-accum-steps 1");
}

// Of another launcher, which the flags do not know.
TEST(BatchPlan, ReplicasAreOfOneProcess) {
  EXPECT_EQ(plan_batch({.parallel = "dp", .replicas = 2, .batch_size = 25}, 1, kSamples), (BatchPlan{25, 1, 25}));
  EXPECT_EQ(plan_refusal({.parallel = "dp", .replicas = 2}, 4),
            "--parallel dp is one process with --replicas 2, but there are 4 processes: start one, or "
            "--parallel ddp");
}

TEST(BatchPlan, ShardsDivideTheGlobalBatch) {
  EXPECT_EQ(plan_refusal({.global_batch_size = 100, .logical_shards = 6}, 2),
            "the global batch of 100 samples does not divide into 6 shards: --logical-shards 5 would, or "
            "--global-batch-size 102");
  EXPECT_THAT(plan_refusal({.global_batch_size = 100}, 3), HasSubstr("--logical-shards 4 would"));
  EXPECT_THAT(plan_refusal({.global_batch_size = 3, .logical_shards = 60000}, 4),
              HasSubstr("--global-batch-size 60000"));
}

TEST(BatchPlan, AStepNeedsNoMoreThanTheSetHas) {
  EXPECT_EQ(plan_batch({.batch_size = 10}, 2, 20).global_batch, 20);
  EXPECT_THAT(plan_refusal({.batch_size = 10}, 2, 19), HasSubstr("the global batch is 20, the set has 19"));
}

TEST(BatchPlan, ARunWithoutStepsNeedsNoData) {
  EXPECT_TRUE(reads_data({}));
  EXPECT_TRUE(reads_data({.epochs = 1, .max_steps = 1}));
  EXPECT_FALSE(reads_data({.max_steps = 0}));
  EXPECT_FALSE(reads_data({.epochs = 0}));
  EXPECT_EQ(plan_batch({.max_steps = 0}, 2, 0).global_batch, 200);
}

TEST(Steps, AnEpochCountsPaddedShardsAndItsSmallLastBatch) {
  EXPECT_EQ(steps_per_epoch({100, 2, 50}, 60000), 600);
  EXPECT_EQ(steps_per_epoch({200, 2, 100}, 60001), 301);  // 30001 samples a shard
  EXPECT_EQ(steps_per_epoch({12, 4, 3}, 13), 2);          // 4 samples a shard: 3, then 1
  EXPECT_EQ(steps_per_epoch({12, 4, 3}, 12), 1);
}

TEST(Planned, TheRecordOfARunNeedsNothingBeside) {
  for (const Options& asked : {Options{}, Options{.batch_size = 25, .grad_accum_steps = 2},
                               Options{.global_batch_size = 64, .logical_shards = 4}}) {
    const BatchPlan plan = plan_batch(asked, 2, kSamples);
    const Options record = planned(asked, plan, 2);
    EXPECT_EQ(record.processes(), 2);
    EXPECT_EQ(plan_batch(record, record.processes(), kSamples), plan);
    EXPECT_EQ(plan_batch(record, 1, kSamples), plan) << "and one process computes the same";
  }
}

TEST(PlaceOfStep, StepsCountFromOne) {
  const auto expect_place = [](std::int64_t step, std::int64_t per_epoch, StepPlace expected) {
    const StepPlace place = place_of_step(step, per_epoch);
    EXPECT_EQ(place.epoch, expected.epoch) << step;
    EXPECT_EQ(place.batch, expected.batch) << step;
    EXPECT_EQ(place.ends_epoch, expected.ends_epoch) << step;
  };
  expect_place(1, 3, {0, 0, false});
  expect_place(3, 3, {0, 2, true});
  expect_place(4, 3, {1, 0, false});
  expect_place(1, 1, {0, 0, true});
  expect_place(2, 1, {1, 0, true});
  expect_place(std::int64_t(1) << 40, 2, {(std::int64_t(1) << 39) - 1, 1, true});
}

TEST(Steps, TheFirstLimitReachedEndsTheRun) {
  EXPECT_EQ(steps_in_run({}, 600), 600);
  EXPECT_EQ(steps_in_run({.epochs = 3}, 600), 1800);
  EXPECT_EQ(steps_in_run({.epochs = 3, .max_steps = 700}, 600), 700);
  EXPECT_EQ(steps_in_run({.epochs = 1, .max_steps = 700}, 600), 600);
  EXPECT_EQ(steps_in_run({.max_steps = 700}, 600), 700);  // alone it crosses the epoch
  EXPECT_EQ(steps_in_run({.max_steps = 0}, 600), 0);
  EXPECT_EQ(steps_in_run({.epochs = 0}, 600), 0);
  // 7 steps of another batch stand where 3 of this one would: its epochs end 4 steps later.
  EXPECT_EQ(steps_in_run({.epochs = 3}, 600, -4), 1804);
  EXPECT_EQ(steps_in_run({.epochs = 3, .max_steps = 1802}, 600, -4), 1802);
}

}  // namespace
}  // namespace lockstep::train
