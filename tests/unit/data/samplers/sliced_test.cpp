#include "lockstep/data/samplers/sliced.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lockstep/data/samplers/deal.h"
#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

// What a shard takes in an epoch.
Indices taken_by(int shard, int shards, std::int64_t size, std::uint64_t epoch) {
  const SlicedSampler sampler(size, {.slices = shards, .seed = 5});
  return share_of(sampler.order(epoch), {.num_replicas = shards, .rank = shard});
}

TEST(SlicedSampler, AShardTakesItsSliceInAnOrderOfItsOwn) {
  for (int shard = 0; shard < 3; ++shard) {
    const Indices first = taken_by(shard, 3, 60, 0), second = taken_by(shard, 3, 60, 1);
    EXPECT_NE(first, second);
    for (const Indices& taken : {first, second}) {
      Indices sorted = taken;
      std::ranges::sort(sorted);
      for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(sorted[std::size_t(i)], shard * 20 + i);
    }
    EXPECT_EQ(taken_by(shard, 3, 60, 0), first) << "a function of the epoch";
  }
  Indices shifted = taken_by(1, 3, 60, 0);
  for (std::int64_t& sample : shifted) sample -= 20;
  EXPECT_NE(shifted, taken_by(0, 3, 60, 0));
}

TEST(SlicedSampler, EverySampleIsInASliceWhateverTheirNumber) {
  for (const std::int64_t size : {7, 8, 9, 100}) {
    std::set<std::int64_t> all;
    for (int shard = 0; shard < 4; ++shard) {
      const Indices taken = taken_by(shard, 4, size, 2);
      EXPECT_EQ(std::int64_t(taken.size()), (size + 3) / 4) << size;
      all.insert(taken.begin(), taken.end());
    }
    EXPECT_EQ(std::int64_t(all.size()), size);
    EXPECT_EQ(*all.rbegin(), size - 1);
  }
}

TEST(SlicedSampler, RefusesWhatCannotBe) {
  EXPECT_THAT(testing::usage_error([] { SlicedSampler(9, {.slices = 0}); }), HasSubstr("0 slices"));
  EXPECT_THAT(testing::usage_error([] { SlicedSampler(2, {.slices = 3}); }), HasSubstr("too few for 3 slices"));
}

}  // namespace
}  // namespace lockstep::data
