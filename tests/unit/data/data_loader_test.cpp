#include "lockstep/data/data_loader.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/data/picture_batches.h"
#include "lockstep/data/samplers/distributed.h"
#include "lockstep/data/samplers/random.h"
#include "lockstep/data/tensor_batches.h"
#include "tests/support/usage_error.h"
#include "tests/unit/data/numbered_samples.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

// What Python's loader over DistributedSampler(num_replicas=shards, rank=shard) gives.
Numbers by_rule(std::int64_t count, const Part& part, int shard, std::int64_t shard_batch, const DataLoaderState& place,
                std::uint64_t seed) {
  DistributedSampler sampler(count, part.shards, shard, {.seed = seed});
  sampler.set_epoch(std::uint64_t(place.epoch));
  const Numbers order = sampler.indices();
  const auto first = std::min<std::size_t>(std::size_t(place.batch * shard_batch), order.size());
  const auto last = std::min<std::size_t>(first + std::size_t(shard_batch), order.size());
  return {order.begin() + std::int64_t(first), order.begin() + std::int64_t(last)};
}

// 25 samples for 4 shards: 7 each, padded; 3 at a time: 3, 3, 1.
constexpr std::int64_t kSetSize = 25;
constexpr Part kMiddle{.rank = 1, .ranks = 3, .shards = 4};  // shard 1

TEST(DataLoader, HasTheOrderOfTheDistributedSampler) {
  for (const Part& part : std::vector<Part>{kMiddle, Part{.rank = 1, .ranks = 2, .shards = 4}}) {
    DataLoader loader(samples(kSetSize), part, {.global_batch_size = 12, .shuffle = true, .seed = 7, .num_workers = 2});
    EXPECT_EQ(loader.size(), 3);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      loader.set_epoch(epoch);
      std::int64_t number = 0;
      for (auto& batch : loader) {
        Numbers expected;
        for (int shard = part.span().first; shard < part.span().last; ++shard) {
          const Numbers more = by_rule(kSetSize, part, shard, 3, {epoch, number}, 7);
          expected.insert(expected.end(), more.begin(), more.end());
        }
        EXPECT_EQ(samples_in(batch), expected) << "epoch " << epoch << ", batch " << number;
        EXPECT_TRUE(at::equal(batch.data, at::full({batch.data.size(0)}, double(epoch))));
        ++number;
        EXPECT_EQ(loader.state(), (DataLoaderState{epoch, number})) << "the loop has it, those ahead do not count";
      }
      EXPECT_EQ(number, 3);
    }
  }
}

TEST(DataLoader, GivesTheSameWhoeverComputesIt) {
  const DataLoaderOptions options{.global_batch_size = 12, .shuffle = true, .seed = 7};
  DataLoader all(samples(kSetSize), {.shards = 4}, options);
  const std::vector<Numbers> expected = pass(all);
  for (int ranks = 2; ranks <= 4; ++ranks) {
    std::vector<Numbers> joined(expected.size());
    for (int rank = 0; rank < ranks; ++rank) {
      DataLoader loader(samples(kSetSize), {.rank = rank, .ranks = ranks, .shards = 4}, options);
      const std::vector<Numbers> mine = pass(loader);
      ASSERT_EQ(mine.size(), joined.size());
      for (std::size_t i = 0; i < mine.size(); ++i) joined[i].insert(joined[i].end(), mine[i].begin(), mine[i].end());
    }
    EXPECT_EQ(joined, expected) << ranks << " ranks";
  }
}

TEST(DataLoader, TakesASizePerProcessAsPyTorchOrOfAll) {
  DataLoader per_process(samples(24), {.rank = 0, .ranks = 2, .shards = 4}, {.batch_size = 6});
  DataLoader of_all(samples(24), {.rank = 0, .ranks = 2, .shards = 4}, {.global_batch_size = 12});
  EXPECT_EQ(pass(per_process), pass(of_all));
  DataLoader alone(samples(7), Part{}, {.batch_size = 3});
  EXPECT_EQ(pass(alone), (std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}, {6}})) << "in order unless shuffled";
}

TEST(DataLoader, LeavesOutWhatFillsNoStepWhereAsked) {
  Numbers seen;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoader loader(samples(kSetSize), {.rank = rank, .ranks = 2, .shards = 2},
                      {.global_batch_size = 10, .shuffle = true, .drop_last = true});
    EXPECT_EQ(loader.size(), 2) << "floor(25 / 10)";
    for (const Numbers& batch : pass(loader)) {
      EXPECT_EQ(batch.size(), 5u);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end()) << "none comes twice";
  // 7 samples in 2 shards: padded there would be 4 each, and a step of 8.
  EXPECT_EQ(testing::usage_error(
                [] { DataLoader(samples(7), {.ranks = 2, .shards = 2}, {.global_batch_size = 8, .drop_last = true}); }),
            "data loader: 7 samples make no step of 8");
}

TEST(DataLoader, GoesFromEpochToEpoch) {
  DataLoader loader(samples(10), Part{}, {.batch_size = 5, .shuffle = true, .seed = 1});
  const std::vector<Numbers> first = pass(loader), second = pass(loader);
  EXPECT_EQ(loader.epoch(), 2) << "without set_epoch, too";
  EXPECT_NE(first, second);
  loader.set_epoch(0);
  EXPECT_EQ(pass(loader), first);
  loader.set_epoch(0);
  EXPECT_EQ(pass(loader), first) << "once more when asked";
  loader.set_epoch(1);
  EXPECT_EQ(pass(loader), second);
  EXPECT_THAT(testing::usage_error([&] { loader.set_epoch(-1); }), HasSubstr("epoch -1"));
}

TEST(DataLoader, APassThatWasLeftGoesOn) {
  DataLoader loader(samples(12), Part{}, {.batch_size = 3});
  for (auto& batch : loader)
    if (samples_in(batch).front() == 3) break;
  EXPECT_EQ(loader.state(), (DataLoaderState{0, 2}));
  loader.set_epoch(0);
  EXPECT_EQ(pass(loader), (std::vector<Numbers>{{6, 7, 8}, {9, 10, 11}}));
}

TEST(DataLoader, GoesOnFromARestoredState) {
  const DataLoaderOptions options{.batch_size = 2, .shuffle = true, .seed = 5, .num_workers = 2};
  DataLoader whole(samples(10), Part{}, options);
  std::map<std::pair<std::int64_t, std::int64_t>, Numbers> all;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : whole) all[{epoch, whole.state().batch - 1}] = samples_in(batch);
  ASSERT_EQ(all.size(), 15u);
  for (const auto& state : std::vector<DataLoaderState>{{1, 3}, {0, 0}, {2, 4}, {0, 4}}) {
    whole.restore(state);
    EXPECT_EQ(samples_in(*whole.next()), (all[{state.epoch, state.batch}]));
    DataLoader fresh(samples(10), Part{}, options);
    fresh.restore(state);
    EXPECT_EQ(samples_in(*fresh.next()), (all[{state.epoch, state.batch}]));
  }
  whole.restore({1, 5});
  EXPECT_TRUE(pass(whole).empty()) << "the end of an epoch: what stands behind the pass happens";
  EXPECT_EQ(whole.epoch(), 2);
  EXPECT_EQ(samples_in(*whole.next()), (all[{2, 0}]));
  for (const auto& wrong : std::vector<DataLoaderState>{{0, 6}, {0, -1}, {-1, 0}, {INT64_MAX, 0}})
    EXPECT_THAT(testing::usage_error([&] { whole.restore(wrong); }), HasSubstr("an epoch has 5"));
}

// What an engine does when an optimizer attaches after a restart.
TEST(DataLoader, ItsPlaceIsBytesThatOthersKeep) {
  const DataLoaderOptions options{.batch_size = 2, .shuffle = true};
  DataLoader before(samples(10), Part{}, options), after(samples(10), Part{}, options);
  for (int i = 0; i < 8; ++i)
    if (!before.next()) before.next();
  const std::span<std::byte> kept = before.kept();
  std::memcpy(after.kept().data(), kept.data(), kept.size());
  EXPECT_EQ(after.state(), before.state());
  EXPECT_EQ(after.epoch(), 1);
  std::map<std::string, std::int64_t> told;
  for (const auto& [name, offset] : DataLoader::place_in_kept())
    std::memcpy(&told[name], kept.data() + offset, sizeof(std::int64_t));
  const DataLoaderState place = before.state();
  EXPECT_EQ(told, (std::map<std::string, std::int64_t>{
                      {"batch", place.batch}, {"epoch", place.epoch}, {"seen", place.seen}}));
  after.set_epoch(after.epoch());
  EXPECT_EQ(samples_in(*after.next()), samples_in(*before.next()));
  const DataLoaderState of_another_set{0, 700};
  std::memcpy(after.kept().data(), &of_another_set, sizeof of_another_set);
  EXPECT_THAT(testing::usage_error([&] { after.next(); }), HasSubstr("no place behind 700 batches of epoch 0"));
}

// Behind the pass its end is known: a loop that begins there does not make the epoch once more.
TEST(DataLoader, APlaceKeptBehindAPassIsThatOfTheNextEpoch) {
  const DataLoaderOptions options{.batch_size = 2, .shuffle = true};
  DataLoader before(samples(10), Part{}, options), after(samples(10), Part{}, options);
  pass(before);
  std::memcpy(after.kept().data(), before.kept().data(), before.kept().size());
  EXPECT_EQ(after.epoch(), 1);
  after.set_epoch(after.epoch());
  EXPECT_EQ(pass(after), pass(before));
}

// A pass that was made before the place was loaded has nothing to do with it.
TEST(DataLoader, APassBeforeARestartsPlaceIsForgotten) {
  const DataLoaderOptions options{.batch_size = 2, .shuffle = true};
  DataLoader before(samples(10), Part{}, options), after(samples(10), Part{}, options);
  before.restore({1, 3});
  pass(after);  // to look at the set, say
  std::memcpy(after.kept().data(), before.kept().data(), before.kept().size());
  after.set_epoch(after.epoch());
  EXPECT_EQ(after.state(), (DataLoaderState{1, 3}));
  EXPECT_EQ(samples_in(*after.next()), samples_in(*before.next()));
}

// Says that it has more samples than its order.
struct ShortOrder : Sampler {
  std::int64_t num_samples() const override { return 4; }
  std::vector<std::int64_t> order(std::uint64_t /*epoch*/) const override { return {0, 1, 2}; }
};

TEST(DataLoader, RefusesWhatCannotBe) {
  const auto said = [&](const DataLoaderOptions& options) {
    return testing::usage_error([&] { DataLoader(samples(4), Part{}, options); });
  };
  EXPECT_EQ(said({.batch_size = 2, .timeout = 0}), "data loader: .timeout 0.000000, more than 0 seconds expected");
  EXPECT_THAT(said({.batch_size = 2, .timeout = std::nan("")}), HasSubstr(".timeout nan"));
  EXPECT_THAT(said({.batch_size = 2, .total_batches = -1}), HasSubstr(".total_batches -1"));
  EXPECT_THAT(said({.batch_size = std::int64_t(1) << 62}), HasSubstr("1 to 2^40 expected"));
  EXPECT_THAT(said({.batch_size = 2, .num_workers = 1 << 30}), HasSubstr(".num_workers 1073741824"));
  EXPECT_EQ(testing::usage_error([] { DataLoader(std::shared_ptr<const Batches>(), Part{}, {.batch_size = 2}); }),
            "data loader: no set: the pointer to it is null");
  DataLoader of_short_order(samples(4), Part{}, {.batch_size = 2, .sampler = std::make_shared<ShortOrder>()});
  EXPECT_EQ(testing::usage_error([&] { of_short_order.next(); }),
            "sampler: epoch 0 has 3 samples, its num_samples() says 4");
}

TEST(DataLoader, EndsWithTheLastBatchOfAll) {
  DataLoader loader(samples(10), Part{}, {.batch_size = 2, .total_batches = 7});
  EXPECT_EQ(pass(loader).size(), 5u);
  EXPECT_EQ(pass(loader).size(), 2u);
  EXPECT_TRUE(pass(loader).empty());
  EXPECT_EQ(loader.state(), (DataLoaderState{1, 2}));
}

TEST(DataLoader, KeepsItsThreadsFromEpochToEpoch) {
  DataLoader loader(samples(10), Part{}, {.batch_size = 5, .num_workers = 2});
  EXPECT_TRUE(loader.statistics().workers.empty()) << "none before the first batch";
  for (int epoch = 0; epoch < 4; ++epoch) pass(loader);
  std::int64_t batches = 0;
  const LoaderStatistics statistics = loader.statistics();
  for (const WorkerStatistics& worker : statistics.workers) batches += worker.batches;
  EXPECT_EQ(statistics.workers.size(), 2u);
  EXPECT_GE(batches, 8) << "counted since the beginning";
}

TEST(DataLoader, TakesAnyOrder) {
  const auto sampler = std::make_shared<WeightedRandomSampler>(std::vector<double>{0, 0, 1, 0},
                                                               WeightedRandomSamplerOptions{.num_samples = 6});
  DataLoader loader(samples(4), Part{}, {.batch_size = 3, .sampler = sampler});
  EXPECT_EQ(pass(loader), (std::vector<Numbers>{{2, 2, 2}, {2, 2, 2}}));
  EXPECT_THAT(testing::usage_error(
                  [&] { DataLoader(samples(4), Part{}, {.batch_size = 3, .shuffle = true, .sampler = sampler}); }),
              HasSubstr(".shuffle and .sampler"));
}

// 24 pictures of one pixel that holds the sample's number: steps of 4 shards of 3.
Batch mixed_batch(const Part& part, const DataLoaderState& place, std::uint64_t seed = 3) {
  MemoryPictures::Content content{.size = {1, 1}, .channels = 1, .classes = {"a", "b"}};
  for (int i = 0; i < 24; ++i) {
    content.pixels.push_back(std::uint8_t(10 * i));
    content.labels.push_back(i / 4 % 2);  // neighbours in a shard differ
  }
  const auto set = std::make_shared<MemoryPictures>(std::move(content));
  DataLoader loader(std::make_shared<PictureBatches>(set, Compose()), part,
                    {.global_batch_size = 12, .seed = seed, .mix = mixup_cutmix(0.4, 0), .classes = 2});
  loader.restore(place);
  return *loader.next();
}

TEST(DataLoader, MixesEachShardWithinItself) {
  for (std::int64_t epoch = 0; epoch < 2; ++epoch)
    for (std::int64_t number = 0; number < 2; ++number) {
      const DataLoaderState place{epoch, number};
      const Batch all = mixed_batch({.shards = 4}, place);
      std::vector<at::Tensor> data, target;
      for (int rank = 0; rank < 3; ++rank) {
        const Batch part = mixed_batch({.rank = rank, .ranks = 3, .shards = 4}, place);
        data.push_back(part.data);
        target.push_back(part.target);
      }
      EXPECT_TRUE(at::equal(all.data, at::cat(data))) << number;
      EXPECT_TRUE(at::equal(all.target, at::cat(target))) << number;
      EXPECT_EQ(all.target.sizes(), (std::vector<std::int64_t>{12, 2}));
    }
}

TEST(DataLoader, MixesAnewInEachStepAndByTheSeed) {
  const Part part{.shards = 4};
  EXPECT_FALSE(at::equal(mixed_batch(part, {0, 0}, 3).data, mixed_batch(part, {0, 0}, 4).data));
  const auto share = [&](const DataLoaderState& place) {  // of one of the two samples where their classes differ
    const at::Tensor target = mixed_batch({.rank = 0, .ranks = 4, .shards = 4}, place).target.view(-1);
    return target.masked_select(target.gt(0)).min().item<float>();
  };
  EXPECT_NE(share({0, 0}), share({0, 1}));
  EXPECT_NE(share({0, 0}), share({1, 0}));
}

TEST(DataLoader, SaysWhatDoesNotFit) {
  const auto refusal = [](const Part& part, const DataLoaderOptions& options) {
    return testing::usage_error([&] { DataLoader(samples(24), part, options); });
  };
  EXPECT_THAT(refusal({}, {}), HasSubstr(".batch_size, per process, or .global_batch_size, of all: one of the two"));
  EXPECT_THAT(refusal({}, {.batch_size = 2, .global_batch_size = 2}), HasSubstr("one of the two"));
  EXPECT_EQ(refusal({.ranks = 2, .shards = 4}, {.batch_size = 3}),
            "data loader: 6 samples per step of all processes, a multiple of the 4 shards expected");
  EXPECT_THAT(refusal({}, {.batch_size = 0}), HasSubstr("a batch of 0 samples"));
  EXPECT_THAT(refusal({.rank = 2, .ranks = 2, .shards = 2}, {.batch_size = 3}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(refusal({.ranks = 2, .shards = 1}, {.batch_size = 3}), HasSubstr("with 1 shards"));
  EXPECT_THAT(refusal({.ranks = 0}, {.batch_size = 3}), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(refusal({}, {.batch_size = 3, .num_workers = 0}), HasSubstr(".num_workers 0"));
  EXPECT_THAT(refusal({}, {.batch_size = 1, .mix = mixup_cutmix(1, 0), .classes = 2}), HasSubstr("at least 2 samples"));
  EXPECT_THAT(refusal({}, {.batch_size = 4, .mix = mixup_cutmix(1, 0)}), HasSubstr("the number of classes"));
}

TEST(DataLoader, ReadsTensorsInOneLine) {
  const at::Tensor numbers = at::full({4, 2}, 3.0);
  DataLoader loader(tensors(numbers), Part{}, {.batch_size = 4});
  EXPECT_TRUE(at::equal(loader.next()->data, numbers));
}

}  // namespace
}  // namespace lockstep::data
