#include "lockstep/memory/pool.h"

#include <gtest/gtest.h>

namespace lockstep::memory {
namespace {

constexpr std::size_t kBytes = 4096;

class PoolTest : public testing::Test {
 protected:
  ~PoolTest() override { pool_.empty(); }

  Block* keep(std::size_t bytes) {
    Block* const block = new_block(size_class_of(bytes));
    FreeList one;
    one.push(block);
    pool_.put(one, 1);
    return block;
  }

  void drop(Block* block) {
    FreeList one;
    one.push(block);
    pool_.discard(one);
  }

  Pool pool_;
};

TEST_F(PoolTest, GivesWhatItKeepsTheLastFirst) {
  Block* const first = keep(kBytes);
  Block* const second = keep(kBytes);
  EXPECT_EQ(pool_.stats().bytes_kept, std::int64_t(2 * kBytes));
  EXPECT_EQ(pool_.take(size_class_of(kBytes)), second);
  EXPECT_EQ(pool_.take(size_class_of(kBytes)), first);
  EXPECT_EQ(pool_.take(size_class_of(kBytes)), nullptr);
  EXPECT_EQ(pool_.stats().bytes_kept, 0);
  drop(first);
  drop(second);
}

TEST_F(PoolTest, SizesDoNotMix) {
  keep(kBytes);
  EXPECT_EQ(pool_.take(size_class_of(2 * kBytes)), nullptr);
  EXPECT_EQ(pool_.take(size_class_of(kBytes / 2)), nullptr);
}

TEST_F(PoolTest, SeveralAtATimeNoMoreThanAskedForOrThere) {
  for (int i = 0; i < 5; ++i) keep(kBytes);
  FreeList some;
  pool_.take(size_class_of(kBytes), 3, some);
  EXPECT_EQ(some.count(), 3u);
  pool_.take(size_class_of(kBytes), 3, some);
  EXPECT_EQ(some.count(), 5u);
  pool_.put(some, some.count());
  EXPECT_EQ(pool_.stats().bytes_kept, std::int64_t(5 * kBytes));
}

TEST_F(PoolTest, BeyondTheLimitTheLongestUnusedSizeGoes) {
  pool_.set_limit(4 * kBytes);
  keep(kBytes);
  keep(2 * kBytes);
  drop(pool_.take(size_class_of(kBytes)));
  keep(kBytes);  // now the other size is the older one
  keep(kBytes);
  EXPECT_EQ(pool_.stats().releases, 1u);
  keep(kBytes);
  EXPECT_EQ(pool_.stats().releases, 2u);
  EXPECT_EQ(pool_.stats().bytes_kept, std::int64_t(3 * kBytes));
  EXPECT_EQ(pool_.take(size_class_of(2 * kBytes)), nullptr);
}

TEST_F(PoolTest, ALowerLimitActsAtOnce) {
  for (int i = 0; i < 4; ++i) keep(kBytes);
  pool_.set_limit(kBytes);
  EXPECT_EQ(pool_.stats().bytes_kept, std::int64_t(kBytes));
  EXPECT_EQ(pool_.limit(), kBytes);
}

TEST_F(PoolTest, EmptyGivesAllBack) {
  keep(kBytes);
  keep(kMappedBytes);
  const std::uint64_t generation = pool_.generation();
  pool_.empty();
  EXPECT_EQ(pool_.stats().bytes_kept, 0);
  EXPECT_EQ(pool_.stats().releases, 2u);
  EXPECT_NE(pool_.generation(), generation);
}

}  // namespace
}  // namespace lockstep::memory
