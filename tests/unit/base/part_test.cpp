#include "lockstep/base/part.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

TEST(Part, AsItStandsIsEverything) {
  EXPECT_EQ(Part().span(), (ShardSpan{0, 1}));
  EXPECT_EQ((Part{.shards = 4}.span()), (ShardSpan{0, 4}));
  EXPECT_EQ((Part{.rank = 1, .ranks = 3, .shards = 4}.span()), shards_of(1, 3, 4));
}

TEST(BatchesPerEpoch, ArePaddedOrWhole) {
  EXPECT_EQ(batches_per_epoch(25, 4, 3, false), 3) << "7 samples a shard: 3, 3, 1";
  EXPECT_EQ(batches_per_epoch(25, 4, 3, true), 2) << "floor(25 / 12)";
  EXPECT_EQ(batches_per_epoch(24, 4, 3, false), 2);
  EXPECT_EQ(batches_per_epoch(24, 4, 3, true), 2);
  EXPECT_EQ(batches_per_epoch(3, 4, 1, false), 1);
  EXPECT_EQ(batches_per_epoch(3, 4, 1, true), 0);
  EXPECT_EQ(batches_per_epoch(0, 1, 1, false), 0);
}

}  // namespace
}  // namespace lockstep::base
