#include "lockstep/train/shard_source.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/samplers/distributed.h"

namespace lockstep::train {
namespace {

using Indices = std::vector<std::int64_t>;

// The target of a sample is its index, its datum the epoch.
class Numbered : public data::Batches {
 public:
  explicit Numbered(std::int64_t samples) : samples_(samples) {}
  std::int64_t size() const override { return samples_; }
  data::Batch make(std::uint64_t epoch, std::span<const std::int64_t> indices) const override {
    const auto count = std::int64_t(indices.size());
    data::Batch batch{at::full({count}, double(epoch)), at::empty({count}, at::kLong)};
    std::ranges::copy(indices, batch.target.mutable_data_ptr<std::int64_t>());
    return batch;
  }

 private:
  std::int64_t samples_;
};

std::shared_ptr<const data::Batches> numbered(std::int64_t samples) { return std::make_shared<Numbered>(samples); }

Indices samples_of(const data::Batch& batch) {
  const std::int64_t* first = batch.target.const_data_ptr<std::int64_t>();
  return {first, first + batch.target.size(0)};
}

// What Python's loader over DistributedSampler(num_replicas=shards, rank=shard) gives at `place`.
Indices by_rule(std::int64_t samples, const BatchPlan& plan, int shard, const StepPlace& place, std::uint64_t seed) {
  data::DistributedSampler sampler(samples, plan.shards, shard, {.seed = seed});
  sampler.set_epoch(std::uint64_t(place.epoch));
  const Indices order = sampler.indices();
  const auto first = std::min<std::size_t>(std::size_t(place.batch * plan.shard_batch), order.size());
  const auto last = std::min<std::size_t>(first + std::size_t(plan.shard_batch), order.size());
  return {order.begin() + std::int64_t(first), order.begin() + std::int64_t(last)};
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

// 25 samples for 4 shards: 7 each, padded; 3 at a time: 3, 3, 1.
constexpr BatchPlan kPlan{.global_batch = 12, .shards = 4, .shard_batch = 3};
constexpr std::int64_t kSamples = 25;

TEST(ShardSource, TheOrderOfTheDistributedSampler) {
  const auto source = shard_source(numbered(kSamples), kPlan, {1, 3}, 7);
  const std::int64_t per_epoch = steps_per_epoch(kPlan, kSamples);
  ASSERT_EQ(per_epoch, 3);
  for (std::int64_t step = 1; step <= 3 * per_epoch; ++step) {
    const StepPlace place = place_of_step(step, per_epoch);
    Indices expected = by_rule(kSamples, kPlan, 1, place, 7);
    const Indices second = by_rule(kSamples, kPlan, 2, place, 7);
    expected.insert(expected.end(), second.begin(), second.end());
    const data::Batch batch = source(step);
    EXPECT_EQ(samples_of(batch), expected) << step;
    EXPECT_TRUE(at::equal(batch.data, at::full_like(batch.data, double(place.epoch)))) << step;
    EXPECT_EQ(expected.size(), place.ends_epoch ? 2u : 6u);
  }
}

TEST(ShardSource, TheSameWhoeverComputesIt) {
  const auto all = shard_source(numbered(kSamples), kPlan, {0, kPlan.shards}, 7);
  for (int ranks = 2; ranks <= kPlan.shards; ++ranks)
    for (std::int64_t step = 1; step <= 7; ++step) {
      Indices joined;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto span = parallel::shards_of(rank, ranks, kPlan.shards);
        const Indices mine = samples_of(shard_source(numbered(kSamples), kPlan, span, 7)(step));
        joined.insert(joined.end(), mine.begin(), mine.end());
      }
      EXPECT_EQ(joined, samples_of(all(step))) << ranks << " ranks, step " << step;
    }
}

// 24 samples: steps of 4 shards of 3, as pictures of one pixel that holds the sample's number.
data::BatchSource mixed(parallel::ShardSpan span, std::uint64_t seed = 3) {
  data::MemoryPictures::Content content{.size = {1, 1}, .channels = 1, .classes = {"even", "odd"}};
  for (int i = 0; i < 24; ++i) {
    content.pixels.push_back(std::uint8_t(10 * i));
    content.labels.push_back(i % 2);
  }
  const auto set = std::make_shared<data::MemoryPictures>(std::move(content));
  const auto batches = std::make_shared<data::PictureBatches>(set, data::Compose());
  return mixed_source(shard_source(batches, kPlan, span, 7), {data::mixup_cutmix(0.4, 0), 2, seed}, span, 2);
}

TEST(MixedSource, TheSameWhoeverComputesIt) {
  for (std::int64_t step = 1; step <= 5; ++step) {
    const data::Batch all = mixed({0, 4})(step), first = mixed({0, 1})(step), rest = mixed({1, 4})(step);
    EXPECT_TRUE(at::equal(all.data, at::cat({first.data, rest.data}))) << step;
    EXPECT_TRUE(at::equal(all.target, at::cat({first.target, rest.target}))) << step;
    EXPECT_EQ(all.target.sizes(), (std::vector<std::int64_t>{12, 2}));
  }
}

TEST(MixedSource, IsMixedAnewInEachStepAndByTheSeed) {
  EXPECT_FALSE(at::equal(mixed({0, 4}, 3)(1).data, mixed({0, 4}, 4)(1).data));
  const auto share = [](std::int64_t step) {  // of one of the two samples where their classes differ
    const at::Tensor target = mixed({0, 1})(step).target.view(-1);
    return target.masked_select(target.gt(0)).min().item<float>();
  };
  EXPECT_NE(share(1), share(2));
  EXPECT_NE(share(1), share(3)) << "the first step of the next epoch";
}

TEST(ShardSource, AnyStepInAnyOrder) {
  const auto source = shard_source(numbered(kSamples), kPlan, {0, 2}, 7);
  const Indices eighth = samples_of(source(8));
  const Indices second = samples_of(source(2));
  EXPECT_EQ(samples_of(source(8)), eighth);
  EXPECT_EQ(samples_of(source(2)), second);
  EXPECT_NE(second, eighth);
}

TEST(ShardSource, EverySampleOnceWhenTheSetDivides) {
  const auto source = shard_source(numbered(24), kPlan, {0, 4}, 0);
  Indices seen;
  for (std::int64_t step = 1; step <= 2; ++step) {
    const Indices batch = samples_of(source(step));
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  std::sort(seen.begin(), seen.end());
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(seen.at(std::size_t(i)), i);
}

TEST(ShardSource, TheSeedDecidesTheOrder) {
  EXPECT_NE(samples_of(shard_source(numbered(kSamples), kPlan, {0, 4}, 0)(1)),
            samples_of(shard_source(numbered(kSamples), kPlan, {0, 4}, 1)(1)));
}

}  // namespace
}  // namespace lockstep::train
