#include "lockstep/train/train_batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/train/shard_source.h"

namespace lockstep::train {
namespace {

// Sample i is the number i; it takes some time to make.
class Numbers final : public data::Batches {
 public:
  std::int64_t size() const override { return 20; }
  data::Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    const at::Tensor numbers = at::empty({std::int64_t(indices.size())}, at::kLong);
    std::copy(indices.begin(), indices.end(), numbers.mutable_data_ptr<std::int64_t>());
    return {numbers, numbers};
  }
};

TEST(TrainBatches, AreThoseOfTheStepsThatAreLeft) {
  const Options options{.seed = 3, .workers = 2};
  const Input input{.train = std::make_shared<Numbers>()};
  const BatchPlan plan{.global_batch = 4, .shards = 2, .shard_batch = 2};
  const RunSize run{.plan = plan, .total_steps = 8, .train_samples = 20, .epoch_steps = 5, .first_step = 4};
  const parallel::ShardSpan span{1, 2};
  TrainBatches batches(options, input, run, span);
  const data::BatchSource source = shard_source(input.train, plan, span, 3);
  for (std::int64_t step = 4; step <= 8; ++step) EXPECT_TRUE(at::equal(batches.next().data, source(step).data)) << step;
  EXPECT_GT(batches.work_done().prepare, 0);
}

TEST(TrainBatches, LoadersAreAsTheFlagsSay) {
  const data::LoaderOptions loader = loader_options({.workers = 3, .timeout = 7});
  EXPECT_EQ(loader.workers, 3);
  EXPECT_EQ(loader.prefetch, 6);
  EXPECT_EQ(loader.timeout_seconds, 7);
}

}  // namespace
}  // namespace lockstep::train
