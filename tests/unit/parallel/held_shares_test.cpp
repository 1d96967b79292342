#include "lockstep/parallel/held_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::parallel {
namespace {

using state::HeldState;
using ::testing::IsEmpty;

HeldState share_of_two(int share, std::uint64_t set = 5) {
  return {.is_there = true, .set = set, .shares = 2, .share = share};
}

TEST(HeldShares, OfAllNodesAreAWholeState) {
  EXPECT_THAT(why_not_whole({share_of_two(0), share_of_two(1)}), IsEmpty());
  EXPECT_THAT(why_not_whole({HeldState{.is_there = true}}), IsEmpty()) << "one node has it all";
  EXPECT_THAT(why_not_whole({HeldState{}, HeldState{}}), IsEmpty()) << "there is none that could miss something";
}

TEST(HeldShares, SayWhoMissesWhat) {
  EXPECT_EQ(why_not_whole({share_of_two(0), HeldState{}}), "node 1 has nothing of it");
  EXPECT_EQ(why_not_whole({HeldState{}, share_of_two(1)}), "node 0 has nothing of it");
  EXPECT_EQ(why_not_whole({share_of_two(0)}), "it is in 2 shares, and the nodes are 1");
  EXPECT_EQ(why_not_whole({share_of_two(0), share_of_two(1), HeldState{}}), "it is in 2 shares, and the nodes are 3");
  EXPECT_EQ(why_not_whole({HeldState{.is_there = true}, HeldState{.is_there = true}}),
            "it is in 1 share, and the nodes are 2");
}

// A node that has sat out has a share of what the job was then.
TEST(HeldShares, OfDifferentStatesAreNone) {
  EXPECT_EQ(why_not_whole({share_of_two(0, 5), share_of_two(1, 7)}), "node 1 has a share of another one");
  EXPECT_EQ(why_not_whole({share_of_two(0), HeldState{.is_there = true}}), "node 1 has a share of another one");
  EXPECT_EQ(why_not_whole({share_of_two(1), share_of_two(0)}), "node 0 has share 1");
  EXPECT_EQ(why_not_whole({share_of_two(0), share_of_two(0)}), "node 1 has share 0");
}

}  // namespace
}  // namespace lockstep::parallel
