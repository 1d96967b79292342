#include "lockstep/parallel/held_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lockstep::parallel {
namespace {

using state::HeldState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

HeldState share_of_two(int share, std::uint64_t set = 5, std::uint64_t attempts = 1) {
  return {.is_there = true, .set = set, .attempts = attempts, .shares = 2, .share = share};
}

HeldState all_of_it(std::uint64_t attempts) { return {.is_there = true, .attempts = attempts}; }

TEST(HeldShares, AreInPlaceWhereEachNodeHasItsOwn) {
  EXPECT_THAT(why_not_in_place({share_of_two(0), share_of_two(1)}), IsEmpty());
  EXPECT_THAT(why_not_in_place({HeldState{.is_there = true}}), IsEmpty()) << "one node has it all";
  EXPECT_THAT(why_not_in_place({HeldState{}, HeldState{}}), IsEmpty()) << "there is none that could miss something";
}

TEST(HeldShares, SayWhoMissesWhat) {
  EXPECT_EQ(why_not_in_place({share_of_two(0), HeldState{}}), "node 1 has nothing of it");
  EXPECT_EQ(why_not_in_place({HeldState{}, share_of_two(1)}), "node 0 has nothing of it");
  EXPECT_EQ(why_not_in_place({share_of_two(0)}), "it is in 2 shares, and the nodes are 1");
  EXPECT_EQ(why_not_in_place({share_of_two(0), share_of_two(1), HeldState{}}),
            "it is in 2 shares, and the nodes are 3");
  EXPECT_EQ(why_not_in_place({HeldState{.is_there = true}, HeldState{.is_there = true}}),
            "it is in 1 share, and the nodes are 2");
}

// A node that has sat out has a share of what the job was then.
TEST(HeldShares, OfDifferentStatesAreNotInPlace) {
  EXPECT_EQ(why_not_in_place({share_of_two(0, 5), share_of_two(1, 7)}), "node 1 has a share of another one");
  EXPECT_EQ(why_not_in_place({share_of_two(0), HeldState{.is_there = true}}), "node 1 has a share of another one");
  EXPECT_EQ(why_not_in_place({share_of_two(1), share_of_two(0)}), "node 0 has share 1");
  EXPECT_EQ(why_not_in_place({share_of_two(0), share_of_two(0)}), "node 1 has share 0");
}

TEST(HeldShares, AreHadFromWhoHasThem) {
  const HeldState none;
  EXPECT_THAT(holders_of_all({share_of_two(0), share_of_two(1)}), ElementsAre(0, 1));
  EXPECT_THAT(holders_of_all({none, share_of_two(1), share_of_two(0)}), ElementsAre(2, 1));
  EXPECT_THAT(holders_of_all({none, all_of_it(1)}), ElementsAre(1));
  EXPECT_THAT(holders_of_all({share_of_two(0), none}), IsEmpty());
  EXPECT_THAT(holders_of_all({share_of_two(0, 5), share_of_two(1, 7)}), IsEmpty());
  EXPECT_THAT(holders_of_all({none, none}), IsEmpty());
}

TEST(HeldShares, AreHadFromACopyWhereTheirNodeIsLost) {
  const HeldState none;
  const auto of_three = [](int share) {
    return HeldState{.is_there = true, .set = 5, .attempts = 1, .shares = 3, .share = share, .copied = true};
  };
  EXPECT_THAT(holders_of_all({of_three(0), of_three(1), of_three(2)}), ElementsAre(0, 1, 2));
  EXPECT_THAT(holders_of_all({none, of_three(1), of_three(2)}), ElementsAre(1, 1, 2));
  EXPECT_THAT(holders_of_all({of_three(0), none, of_three(2)}), ElementsAre(0, 2, 2));
  EXPECT_THAT(holders_of_all({of_three(0), of_three(1), none}), ElementsAre(0, 1, 0));
  EXPECT_THAT(holders_of_all({of_three(0), of_three(2)}), ElementsAre(0, 1, 1)) << "of fewer nodes";
  EXPECT_THAT(holders_of_all({of_three(0), none, none}), IsEmpty());
  EXPECT_THAT(holders_of_all({none, HeldState{.is_there = true, .set = 5, .shares = 2, .share = 1, .copied = true}}),
              ElementsAre(1, 1));
}

// Who has sat out comes back with what the job was then.
TEST(HeldShares, OfTheLaterAttemptsCount) {
  EXPECT_THAT(holders_of_all({all_of_it(2), all_of_it(3)}), ElementsAre(1));
  EXPECT_THAT(holders_of_all({share_of_two(0, 5, 2), share_of_two(1, 5, 2), all_of_it(3)}), ElementsAre(2));
  EXPECT_THAT(holders_of_all({share_of_two(0, 5, 4), share_of_two(1, 5, 4), all_of_it(3)}), ElementsAre(0, 1));
  EXPECT_THAT(holders_of_all({share_of_two(0, 5, 4), all_of_it(3)}), ElementsAre(1)) << "of the other one is missing";
}

}  // namespace
}  // namespace lockstep::parallel
