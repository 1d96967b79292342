#include "lockstep/parallel/shards.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/base/shard_rank.h"

namespace lockstep::parallel {
namespace {

TEST(Shards, AreCutWithoutGapAndWithoutEmptyRank) {
  const int edges[] = {0, 1, 3, 4, 6};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(shards_of(rank, 4, 6).first, edges[rank]);
    EXPECT_EQ(shards_of(rank, 4, 6).last, edges[rank + 1]);
  }
  for (int shards = 1; shards <= 20; ++shards)
    for (int ranks = 1; ranks <= shards; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(shards_of(rank, ranks, shards).first, next);
        EXPECT_GE(shards_of(rank, ranks, shards).count(), 1);
        for (; next < shards_of(rank, ranks, shards).last; ++next)
          EXPECT_EQ(base::rank_of_shard(next, ranks, shards), rank) << next << " of " << shards;
      }
      EXPECT_EQ(next, shards);
    }
}

// Each with a slot on its node.
TEST(Shards, OfTheNodesAreThoseOfTheirRanks) {
  for (int nodes = 1; nodes <= 3; ++nodes)
    for (int ranks = 1; ranks <= 3; ++ranks)
      for (int shards = nodes * ranks; shards <= 12; ++shards) {
        int next = 0;
        for (int rank = 0; rank < nodes * ranks; ++rank) {
          const comm::Topology place{.rank = rank,
                                     .world = nodes * ranks,
                                     .node = rank / ranks,
                                     .nodes = nodes,
                                     .local_rank = rank % ranks,
                                     .local_world = ranks};
          const ShardSpan mine = shards_of(place, shards);
          const ShardSpan here = shards_on_node(place, shards);
          EXPECT_EQ(mine.first, next);
          EXPECT_TRUE(here.first <= mine.first && mine.last <= here.last);
          EXPECT_EQ(here.first == mine.first, place.local_rank == 0);
          EXPECT_EQ(here.last == mine.last, place.local_rank == ranks - 1);
          next = mine.last;
        }
        EXPECT_EQ(next, shards);
      }
  EXPECT_EQ(shards_on_node(comm::on_one_node(2, 3), 7), (ShardSpan{0, 7}));
}

TEST(ShardSeed, IsSplitMix64Chained) {
  // The first output of SplitMix64 for state 0 (published with the generator).
  constexpr std::uint64_t first = 0xe220a8397b1dcdafULL;
  // mix(0) == first, so with step == first the middle argument is 0 again, and so on.
  EXPECT_EQ(shard_seed(0, first, 0), [] {
    std::uint64_t z = 0xe220a8397b1dcdafULL + 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }());
}

TEST(ShardSeed, ThePassCountsAndTheFirstIsAsWithoutPasses) {
  EXPECT_EQ(shard_seed(1, 2, 3, 0), shard_seed(1, 2, 3));
  std::set<std::uint64_t> seeds;
  for (int shard = 0; shard < 8; ++shard)
    for (std::uint64_t pass = 0; pass < 50; ++pass) seeds.insert(shard_seed(1, 2, shard, pass));
  EXPECT_EQ(seeds.size(), 8u * 50u);
}

TEST(ShardSeed, EveryArgumentCounts) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (std::uint64_t step = 1; step < 50; ++step)
      for (int shard = 0; shard < 8; ++shard) seeds.insert(shard_seed(seed, step, shard));
  EXPECT_EQ(seeds.size(), 8u * 49u * 8u);
  constexpr std::uint64_t kOnce = shard_seed(1, 2, 3);
  EXPECT_EQ(shard_seed(1, 2, 3), kOnce);
}

}  // namespace
}  // namespace lockstep::parallel
