#include "lockstep/data/samplers/shard_order.h"

#include <gtest/gtest.h>

#include "lockstep/data/samplers/random.h"

namespace lockstep::data {
namespace {

using Entries = std::vector<std::int64_t>;

std::shared_ptr<const Sampler> shuffled(std::int64_t size, std::uint64_t seed = 0) {
  return std::make_shared<RandomSampler>(size, RandomSamplerOptions{.seed = seed});
}

TEST(ShardOrder, TakesTheShardsOneBehindTheOther) {
  const ShardOrder order(std::make_shared<SequentialSampler>(9), {.rank = 1, .ranks = 2, .shards = 4}, 2, false);
  EXPECT_EQ(order.batches(), 2);
  EXPECT_EQ(order.samples(0, 0), (Entries{2, 6, 3, 7})) << "shards 2 and 3";
  EXPECT_EQ(order.samples(0, 1), (Entries{1, 2})) << "padded from the front of the order";
}

TEST(ShardOrder, AnyBatchInAnyOrder) {
  const ShardOrder order(shuffled(25, 7), {.rank = 0, .ranks = 2, .shards = 4}, 3, false);
  const Entries late = order.samples(2, 1), early = order.samples(0, 1);
  EXPECT_EQ(order.samples(2, 1), late);
  EXPECT_EQ(order.samples(0, 1), early);
  EXPECT_NE(early, late);
  const ShardOrder by_another_seed(shuffled(25, 8), {.rank = 0, .ranks = 2, .shards = 4}, 3, false);
  EXPECT_NE(by_another_seed.samples(0, 1), early);
}

TEST(ShardOrder, LeavesOutOrRepeatsWhatDoesNotDivide) {
  for (const bool drop_last : {false, true}) {
    std::int64_t entries = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const ShardOrder order(shuffled(25), {.rank = rank, .ranks = 2, .shards = 2}, 5, drop_last);
      for (std::int64_t batch = 0; batch < order.batches(); ++batch)
        entries += std::int64_t(order.samples(0, batch).size());
    }
    EXPECT_EQ(entries, drop_last ? 20 : 26);
  }
}

}  // namespace
}  // namespace lockstep::data
