#include "lockstep/comm/network/level_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::comm {
namespace {

const std::vector<int> kNodes[] = {
    {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 1, 1}, {2, 2, 5, 7, 7, 7}};

TEST(Levels, KnowTheRanksOfEachNode) {
  const Levels levels({2, 2, 5, 7, 7, 7});
  EXPECT_EQ(levels.nodes(), 3);
  EXPECT_EQ(levels.world(), 6);
  EXPECT_EQ(levels.first(2), 3);
  EXPECT_EQ(levels.count(0), 2);
  EXPECT_EQ(levels.count(2), 3);
  EXPECT_EQ(levels.counts(), (std::vector<int>{1, 2, 3}));
  const int nodes[] = {0, 0, 1, 2, 2, 2};
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(levels.node_of(rank), nodes[rank]) << rank;
}

// The tree over six ranks: ((0, 1), (2, 3)), (4, 5).
TEST(Levels, AddUpWholeSubtreesOnEachNode) {
  const Levels levels({2, 2, 5, 7, 7, 7});
  EXPECT_EQ(levels.runs(0), (std::vector<RankSpan>{{0, 2}}));
  EXPECT_EQ(levels.runs(1), (std::vector<RankSpan>{{2, 3}}));
  EXPECT_EQ(levels.runs(2), (std::vector<RankSpan>{{3, 4}, {4, 6}}));
}

TEST(Levels, SpreadPartnersOverTheRanksOfANode) {
  const Levels levels({0, 0, 0, 1, 1});
  const int on_second[] = {3, 4, 3, 3, 4}, on_first[] = {0, 1, 2, 0, 1};
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(levels.partner(1, rank), on_second[rank]) << rank;
    EXPECT_EQ(levels.partner(0, rank), on_first[rank]) << rank;
  }
}

TEST(Shares, CoverTheElementsInTurn) {
  for (const std::size_t elements : {0, 1, 2, 7, 1000})
    for (const int takers : {1, 2, 3, 8}) {
      const Shares shares{elements, takers};
      std::size_t end = 0, longest = 0;
      for (int local = 0; local < takers + 2; ++local) {  // some may be no takers
        EXPECT_EQ(shares.begin(local), end);
        end += shares.size(local);
        longest = std::max(longest, shares.size(local));
      }
      EXPECT_EQ(end, elements);
      EXPECT_EQ(shares.longest(), longest);
    }
}

TEST(Shares, OverlapWithTheLongestOne) {
  const Shares shares{7, 2};  // three and four
  EXPECT_EQ(shares.overlap(0, 0, 2), 2u);
  EXPECT_EQ(shares.overlap(0, 2, 2), 1u);
  EXPECT_EQ(shares.overlap(1, 2, 2), 2u);
  EXPECT_EQ(shares.overlap(0, 3, 1), 0u);
  EXPECT_EQ(shares.overlap(2, 0, 2), 0u);
}

// Each rank of a stretch finds it among its own, in one order; and they cover what each node has to share out.
TEST(Stretches, AreTheSameForAllThatHoldThem) {
  for (const std::vector<int>& nodes : kNodes)
    for (const std::size_t elements : {1, 2, 5, 1000, 1001}) {
      const Levels levels(nodes);
      std::map<std::pair<std::size_t, std::size_t>, std::vector<int>> holders_of;
      for (int node = 0; node < levels.nodes(); ++node) {
        std::size_t end = 0;
        for (int local = 0; local < levels.count(node); ++local) {
          const Shares shares{elements, levels.count(node)};
          EXPECT_EQ(end, shares.begin(local));
          for (const Stretch& stretch : stretches_of(levels, elements, node, local)) {
            EXPECT_EQ(stretch.range.begin, end);
            EXPECT_LT(stretch.range.begin, stretch.range.end);
            end = stretch.range.end;
            ASSERT_EQ(stretch.holders.size(), std::size_t(levels.nodes()));
            EXPECT_EQ(stretch.holders[std::size_t(node)], levels.first(node) + local);
            const auto [known, is_new] =
                holders_of.try_emplace({stretch.range.begin, stretch.range.end}, stretch.holders);
            EXPECT_EQ(known->second, stretch.holders) << (is_new ? "" : "of another rank");
          }
          EXPECT_EQ(end, shares.begin(local + 1));
        }
        EXPECT_EQ(end, elements);
      }
    }
}

TEST(Stretches, AreOneWhereNodesAreAlikeOrLeadersHaveAll) {
  const std::vector<Stretch> alike = stretches_of(Levels({0, 0, 1, 1}), 10, 1, 0);
  ASSERT_EQ(alike.size(), 1u);
  EXPECT_EQ(alike[0].range, (ElementRange{0, 5}));
  EXPECT_EQ(alike[0].holders, (std::vector<int>{0, 2}));
  const Stretch all = stretch_of_leaders(Levels({0, 0, 0, 1}), 10);
  EXPECT_EQ(all.range, (ElementRange{0, 10}));
  EXPECT_EQ(all.holders, (std::vector<int>{0, 3}));
}

TEST(Stretches, AreCutIntoParts) {
  const ElementRange range{10, 17};
  EXPECT_EQ(part_of(range, 0, 3), (ElementRange{10, 12}));
  EXPECT_EQ(part_of(range, 1, 3), (ElementRange{12, 14}));
  EXPECT_EQ(part_of(range, 2, 3), (ElementRange{14, 17}));
  EXPECT_EQ(part_of({3, 4}, 0, 2).size() + part_of({3, 4}, 1, 2).size(), 1u);
}

}  // namespace
}  // namespace lockstep::comm
