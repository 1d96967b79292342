#include "lockstep/data/samplers/distributed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using Indices = std::vector<std::int64_t>;

Indices indices(std::int64_t size, int replicas, int rank, DistributedSamplerOptions options, std::uint64_t epoch = 0) {
  DistributedSampler sampler(size, replicas, rank, options);
  sampler.set_epoch(epoch);
  EXPECT_EQ(sampler.num_samples(), std::int64_t(sampler.indices().size()));
  return sampler.indices();
}

constexpr DistributedSamplerOptions kPlain{.shuffle = false};
constexpr DistributedSamplerOptions kPlainDrop{.shuffle = false, .drop_last = true};

TEST(DistributedSampler, DealsTheSamplesOut) {
  EXPECT_EQ(indices(6, 2, 0, kPlain), (Indices{0, 2, 4}));
  EXPECT_EQ(indices(6, 2, 1, kPlain), (Indices{1, 3, 5}));
  EXPECT_EQ(indices(3, 1, 0, kPlain), (Indices{0, 1, 2}));
}

TEST(DistributedSampler, PadsWithTheFirstSamples) {
  EXPECT_EQ(indices(7, 3, 0, kPlain), (Indices{0, 3, 6}));
  EXPECT_EQ(indices(7, 3, 1, kPlain), (Indices{1, 4, 0}));
  EXPECT_EQ(indices(7, 3, 2, kPlain), (Indices{2, 5, 1}));
}

// Python repeats the whole list: ([0, 1] * 3)[:5] is the padding of 2 samples for 7 ranks.
TEST(DistributedSampler, PadsLongerThanTheSet) {
  const Indices expected = {0, 1, 0, 1, 0, 1, 0};
  for (int rank = 0; rank < 7; ++rank) EXPECT_EQ(indices(2, 7, rank, kPlain), Indices{expected[rank]});
}

TEST(DistributedSampler, DropsTheRestWhenAsked) {
  EXPECT_EQ(indices(7, 3, 0, kPlainDrop), (Indices{0, 3}));
  EXPECT_EQ(indices(7, 3, 2, kPlainDrop), (Indices{2, 5}));
  EXPECT_EQ(indices(6, 3, 2, kPlainDrop), (Indices{2, 5}));
  EXPECT_EQ(indices(2, 3, 1, kPlainDrop), Indices{});
}

TEST(DistributedSampler, ShuffledRanksPartitionEveryEpoch) {
  Indices before;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    Indices all;
    for (int rank = 0; rank < 4; ++rank) {
      const Indices mine = indices(100, 4, rank, {.seed = 9}, epoch);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    EXPECT_NE(all, before);
    before = all;
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, indices(100, 1, 0, kPlain));
  }
}

TEST(DistributedSampler, SeedAndEpochAddUp) {
  EXPECT_EQ(indices(50, 2, 1, {.seed = 3}, 4), indices(50, 2, 1, {.seed = 7}, 0));
  EXPECT_NE(indices(50, 2, 1, {.seed = 3}, 4), indices(50, 2, 1, {.seed = 3}, 5));
}

// torch.randperm(10, generator=torch.Generator().manual_seed(0)) of Python, a well-known list.
TEST(DistributedSampler, ShufflesAsPythonDoes) {
  EXPECT_EQ(indices(10, 1, 0, {}), (Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(indices(10, 3, 1, {}), (Indices{1, 3, 8, 4}));
  EXPECT_EQ(indices(10, 3, 2, {}), (Indices{7, 9, 6, 1}));
}

TEST(DistributedSampler, OfAnEmptySetIsEmpty) { EXPECT_EQ(indices(0, 3, 1, {}), Indices{}); }

TEST(DistributedSampler, RefusesRanksOutsideTheWorld) {
  EXPECT_EQ(testing::usage_error([] { DistributedSampler(10, 2, 2); }),
            "distributed sampler: rank 2 is not in 0 ... 1 (num_replicas 2)");
  testing::usage_error([] { DistributedSampler(10, 2, -1); });
  testing::usage_error([] { DistributedSampler(10, 0, 0); });
  testing::usage_error([] { DistributedSampler(-1, 1, 0); });
}

}  // namespace
}  // namespace lockstep::data
