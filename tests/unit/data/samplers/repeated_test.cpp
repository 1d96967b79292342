#include "lockstep/data/samplers/repeated.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "lockstep/data/samplers/random.h"
#include "lockstep/data/samplers/shard_order.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;
using Order = std::vector<std::int64_t>;

std::shared_ptr<const Sampler> counting(std::int64_t size) { return std::make_shared<SequentialSampler>(size); }

// What torchvision's RASampler gives is compared by tests/parity/sampler_test.py.
TEST(RepeatedSampler, RepeatsEachSampleWithinAnEpochOfTheSameLength) {
  EXPECT_EQ(RepeatedSampler(counting(7), 7).order(0), (Order{0, 7, 14, 1, 8, 15, 2}));
  EXPECT_EQ(RepeatedSampler(counting(7), 7).num_samples(), 7);
  EXPECT_EQ(RepeatedSampler(counting(4), 4, {.repetitions = 1}).order(0), (Order{0, 1, 2, 3}));
  EXPECT_EQ(RepeatedSampler(counting(4), 4, {.repetitions = 9}).order(0), (Order{0, 4, 8, 12}));
  EXPECT_EQ(RepeatedSampler(counting(2), 2, {.repetitions = 2, .num_samples = 4}).order(0), (Order{0, 2, 1, 3}));
  EXPECT_EQ(RepeatedSampler(counting(0), 0).order(0), Order{});
}

TEST(RepeatedSampler, FollowsTheOrderOfTheEpoch) {
  const auto shuffled = std::make_shared<RandomSampler>(10);
  const Order once = shuffled->order(3);
  const RepeatedSampler sampler(shuffled, 10, {.repetitions = 2});
  EXPECT_EQ(sampler.order(3), (Order{once[0], once[0] + 10, once[1], once[1] + 10, once[2], once[2] + 10, once[3],
                                     once[3] + 10, once[4], once[4] + 10}));
  EXPECT_NE(sampler.order(3), sampler.order(4));
}

// The entries of a step, of all shards together, do not depend on who computes them; and the repetitions of a sample
// come into shards of their own.
TEST(RepeatedSampler, BelongsToShardsNotToRanks) {
  const auto sampler = std::make_shared<RepeatedSampler>(std::make_shared<RandomSampler>(24), 24);
  const auto step = [&](int ranks, std::int64_t batch) {
    Order all;
    for (int rank = 0; rank < ranks; ++rank) {
      const ShardOrder order(sampler, {.rank = rank, .ranks = ranks, .shards = 3}, 2, false);
      EXPECT_EQ(order.batches(), 4);
      const Order mine = order.samples(1, batch);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    return all;
  };
  for (std::int64_t batch = 0; batch < 4; ++batch) {
    EXPECT_EQ(step(1, batch), step(3, batch));
    EXPECT_EQ(step(1, batch), step(2, batch));
    for (std::int64_t place = 0; place < 2; ++place) {
      std::set<std::int64_t> samples;
      for (std::int64_t shard = 0; shard < 3; ++shard)
        samples.insert(step(1, batch)[std::size_t(shard * 2 + place)] - shard * 24);
      EXPECT_EQ(samples.size(), 1u) << "repetition r of a sample is at the same place of shard r";
    }
  }
}

TEST(RepeatedSampler, RefusesWhatCannotBe) {
  EXPECT_EQ(usage_error([] { RepeatedSampler(nullptr, 4); }), "repeated sampler: no order: the pointer to it is null");
  EXPECT_EQ(usage_error([] { RepeatedSampler(counting(4), 4, {.repetitions = 0}); }),
            "repeated sampler: 0 repetitions, at least 1 expected");
  EXPECT_EQ(usage_error([] { RepeatedSampler(counting(4), 4, {.num_samples = 13}); }),
            "repeated sampler: num_samples 13, 0 to 3 times 4 expected");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(RepeatedSampler(counting(4), 4, {.repetitions = most}).order(0).size(), 4u);
}

}  // namespace
}  // namespace lockstep::data
