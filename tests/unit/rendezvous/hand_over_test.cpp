#include "lockstep/rendezvous/hand_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using ::testing::HasSubstr;

constexpr Time kPatience{100};
constexpr Time kLimit{50};

struct HeirRow {
  const char* name;
  int rank;
  std::vector<std::string> heirs;
  int since;
  Turn turn;
  int heir;
  Time until = Time::max();
};

const HeirRow kHeirs[] = {
    {"the lowest rank at once", 1, {"a:1", "b:1"}, 0, Turn::host, 1},
    {"the others follow it", 2, {"a:1", "b:1"}, 0, Turn::follow, 1, Time(100)},
    {"to the end of its turn", 2, {"a:1", "b:1"}, 99, Turn::follow, 1, Time(100)},
    {"then it is the next one's", 2, {"a:1", "b:1"}, 100, Turn::host, 2},
    {"which all others follow", 3, {"a:1", "b:1", "c:1"}, 150, Turn::follow, 2, Time(200)},
    {"one without an address has no turn", 3, {"", "b:1", "c:1"}, 99, Turn::follow, 2, Time(100)},
    {"nor does it host", 1, {"", "b:1"}, 0, Turn::follow, 2, Time(100)},
    {"one who comes late to his own is past it", 1, {"a:1", "b:1"}, 100, Turn::follow, 2, Time(200)},
    {"all have had theirs", 2, {"a:1", "b:1"}, 200, Turn::end, 0},
    {"nobody was told", 1, {}, 0, Turn::end, 0},
};

TEST(HandOver, WhoseTurnItIs) {
  for (const HeirRow& row : kHeirs) {
    const Membership last{.generation = 1, .nodes = 4, .rank = row.rank, .heirs = row.heirs};
    const Heir heir = heir_at(last, Time(row.since), kPatience);
    EXPECT_EQ(heir.turn, row.turn) << row.name;
    EXPECT_EQ(heir.rank, row.heir) << row.name;
    EXPECT_EQ(heir.until, row.until) << row.name;
  }
}

// A hosting agent with the nodes 1, 2, ... of generation 1, started at 0.
Majority of_nodes(int nodes) {
  Majority majority;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < nodes; ++i) ids.push_back(std::uint64_t(i));
  majority.begin(1, ids, /*heirs=*/true, Time(0));
  return majority;
}

struct GoneRow {
  int nodes, gone;
  bool gives_up;
};

TEST(HandOver, AHostingAgentGivesUpWhenMostOfTheNodesMayGoOnWithoutIt) {
  for (const GoneRow row : {GoneRow{1, 0, false}, GoneRow{2, 1, false}, GoneRow{3, 1, false}, GoneRow{3, 2, true},
                            GoneRow{4, 2, false}, GoneRow{4, 3, true}, GoneRow{5, 2, false}, GoneRow{5, 3, true}}) {
    Majority majority = of_nodes(row.nodes);
    for (int i = 1; i <= row.gone; ++i) majority.goes(std::uint64_t(i));
    EXPECT_EQ(!majority.gone().empty(), row.gives_up) << row.gone << " of " << row.nodes << majority.gone();
  }
  Majority three = of_nodes(3);
  three.goes(1);
  three.goes(2);
  EXPECT_EQ(three.gone(), "2 of the 3 nodes");
}

// Whoever is cut off and its hosting agent: never do both go on, whatever the number of nodes.
TEST(HandOver, OfTwoHalvesOneGoesOnAtMost) {
  for (int nodes = 2; nodes <= 9; ++nodes)
    for (int away = 0; away < nodes; ++away) {
      Majority there = of_nodes(nodes);
      for (int i = 1; i <= away; ++i) there.goes(std::uint64_t(i));
      Majority here;
      here.inherit({.generation = 1, .nodes = nodes, .rank = 1, .heirs = {}});
      for (int i = 2; i <= away; ++i) {
        EXPECT_TRUE(here.joins(std::uint64_t(i), i));
        here.proves(std::uint64_t(i), 1, Time(5));
      }
      const bool others_go_on = away > 0 && here.votes() >= here.votes_needed();
      EXPECT_FALSE(there.gone().empty() && others_go_on) << away << " of " << nodes << " are away";
      EXPECT_TRUE(there.gone().empty() || others_go_on) << away << " of " << nodes << " are away, and nobody goes on";
    }
}

TEST(HandOver, AHostingAgentCountsOnMostOfTheNodesAsLongAsTheyAnswer) {
  EXPECT_EQ(of_nodes(1).until(kLimit), Time::max());
  EXPECT_EQ(of_nodes(2).until(kLimit), Time::max()) << "one of two is no majority";
  Majority three = of_nodes(3);
  EXPECT_EQ(three.until(kLimit), Time(50));
  three.proves(1, 1, Time(30));
  EXPECT_EQ(three.until(kLimit), Time(80)) << "the other one alone is no majority";
  three.goes(1);
  EXPECT_EQ(three.until(kLimit), Time(80)) << "it was here until then";
  Majority five = of_nodes(5);
  for (const int id : {1, 2, 3}) five.proves(std::uint64_t(id), 1, Time(10 * id));
  EXPECT_EQ(five.until(kLimit), Time(70)) << "nodes 4, 1 and 2 are the first three";
  five.proves(2, 1, Time(5));
  EXPECT_EQ(five.until(kLimit), Time(70)) << "an answer that comes late takes nothing back";
}

TEST(HandOver, WhoEndsOrKnowsOfALaterGenerationGoesOnWithNobody) {
  Majority majority = of_nodes(3);
  majority.resigns(1);
  majority.goes(1);
  majority.goes(2);
  EXPECT_EQ(majority.gone(), "");
  EXPECT_EQ(majority.until(kLimit), Time::max());

  Majority restarted = of_nodes(5);
  restarted.goes(4);
  restarted.begin(2, {0, 1, 2, 3}, true, Time(100));
  EXPECT_EQ(restarted.until(kLimit), Time(50)) << "all of the first generation may know of that alone";
  for (const int id : {1, 2, 3}) restarted.proves(std::uint64_t(id), 2, Time(100));
  EXPECT_EQ(restarted.until(kLimit), Time(150));
  restarted.goes(1);
  restarted.goes(2);
  EXPECT_EQ(restarted.gone(), "") << "2 of 4, and the one of before knows of no such generation";
  restarted.goes(3);
  EXPECT_EQ(restarted.gone(), "3 of the 4 nodes");
}

TEST(HandOver, ANodeThatHasNotHeardOfTheNextGenerationMayGoOnByTheLast) {
  Majority majority = of_nodes(5);
  majority.goes(4);
  majority.begin(2, {0, 1, 2, 3}, true, Time(100));
  majority.goes(1);
  majority.goes(2);
  EXPECT_EQ(majority.gone(), "3 of the 5 nodes");
}

TEST(HandOver, AGenerationWithoutHeirsBindsNobody) {
  Majority majority;
  majority.begin(1, {0, 1, 2}, /*heirs=*/false, Time(0));
  majority.goes(1);
  majority.goes(2);
  EXPECT_EQ(majority.gone(), "");
  EXPECT_EQ(majority.votes_needed(), 0);
}

TEST(HandOver, WhoHostsInAnothersPlaceCountsThoseWhoAnswer) {
  Majority majority;
  majority.inherit({.generation = 7, .nodes = 4, .rank = 2, .heirs = {}});
  EXPECT_EQ(majority.votes(), 1);
  EXPECT_EQ(majority.votes_needed(), 3);
  EXPECT_EQ(majority.gone(), "") << "they have not come yet";
  EXPECT_FALSE(majority.joins(5, 4)) << "there were four";
  EXPECT_FALSE(majority.joins(5, -1));
  EXPECT_FALSE(majority.joins(5, 2)) << "it is its own";
  EXPECT_TRUE(majority.joins(5, 3));
  EXPECT_FALSE(majority.joins(6, 3)) << "it is here";
  EXPECT_TRUE(majority.joins(6, 1));
  EXPECT_EQ(majority.votes(), 1) << "what they have said may be old";
  majority.proves(5, 7, Time(10));
  majority.proves(6, 7, Time(20));
  EXPECT_EQ(majority.votes(), 3);
  EXPECT_EQ(majority.until(kLimit), Time(70)) << "the lost one and both of them would be enough, one of them is not";
  majority.goes(5);
  EXPECT_EQ(majority.votes(), 2);
  EXPECT_TRUE(majority.joins(8, 3)) << "it comes again";
  EXPECT_EQ(majority.votes(), 3);
  majority.begin(8, {0, 6, 8}, true, Time(100));
  majority.goes(6);
  majority.goes(8);
  EXPECT_THAT(majority.gone(), HasSubstr("of the 4 nodes"));
}

}  // namespace
}  // namespace lockstep::rendezvous
