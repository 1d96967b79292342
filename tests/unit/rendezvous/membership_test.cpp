#include "lockstep/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Limits kTwo{.min_nodes = 2, .max_nodes = 2, .join_timeout = Time(600'000), .last_call_timeout = Time(30'000)};
constexpr Limits kTwoToFour{
    .min_nodes = 2, .max_nodes = 4, .join_timeout = Time(600'000), .last_call_timeout = Time(30'000)};
constexpr Limits kStatic{.min_nodes = 3, .max_nodes = 3, .fixed_ranks = true, .join_timeout = Time(600'000)};

Node newcomer(std::uint64_t id, int asked = 0) {
  return {.id = id, .host = "h" + std::to_string(id), .ready = true, .asked = Time(asked)};
}

Node member(std::uint64_t id, int rank, bool ready) {
  return {.id = id, .host = "h" + std::to_string(id), .last_rank = rank, .member = true, .ready = ready};
}

Node left_out(Node node, int until) {
  node.left_out_until = Time(until);
  return node;
}

struct Row {
  const char* name;
  Situation situation;
  Limits limits;
  Step step;
  const char* reason;
  Time again = Time::max();
};

const Row kRows[] = {
    {"one of two waits until the join timeout",
     {.now = Time(5), .nodes = {newcomer(0)}},
     kTwo,
     Step::wait,
     "waiting for 1 of 2 nodes: h0",
     Time(600'000)},
    {"two of two start at once",
     {.now = Time(5), .nodes = {newcomer(0), newcomer(1)}},
     kTwo,
     Step::start,
     "2 nodes: h0, h1"},
    {"the time is up",
     {.now = Time(600'000), .nodes = {newcomer(0)}},
     kTwoToFour,
     Step::end,
     "the time is up (600 s): 1 of at least 2 nodes: h0"},
    {"the last call begins with the second",
     {.now = Time(100), .nodes = {newcomer(0), newcomer(1, 90)}},
     kTwoToFour,
     Step::wait,
     "last call for more: 30 s",
     Time(30'090)},
    {"a third does not put it off",
     {.now = Time(30'089), .nodes = {newcomer(0), newcomer(1, 90), newcomer(2, 30'000)}},
     kTwoToFour,
     Step::wait,
     "last call",
     Time(30'090)},
    {"the last call ends",
     {.now = Time(30'090), .nodes = {newcomer(0), newcomer(1, 90), newcomer(2, 30'000)}},
     kTwoToFour,
     Step::start,
     "3 nodes: h0, h1, h2"},
    {"at MAX at once",
     {.now = Time(100), .nodes = {newcomer(0), newcomer(1), newcomer(2), newcomer(3)}},
     kTwoToFour,
     Step::start,
     "4 nodes"},
    {"behind a hand-over most of the last generation must be here",
     {.now = Time(5),
      .first = false,
      .votes = 1,
      .votes_needed = 2,
      .voters = 3,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true)}},
     kTwoToFour,
     Step::wait,
     "without the hosting agent 2 of the 3 nodes are needed to go on, and 1 is here",
     Time(100)},
    {"and end when they do not come",
     {.now = Time(100),
      .first = false,
      .votes = 1,
      .votes_needed = 2,
      .voters = 3,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true)}},
     kTwoToFour,
     Step::end,
     "2 of the 3 nodes are needed"},
    {"also where they are more than enough without the others' votes",
     {.now = Time(5),
      .first = false,
      .votes = 1,
      .votes_needed = 2,
      .voters = 3,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true), newcomer(2), newcomer(3)}},
     kTwoToFour,
     Step::wait,
     "2 of the 3 nodes are needed",
     Time(100)},
    {"most are here, and another is waited for",
     {.now = Time(5),
      .first = false,
      .votes = 3,
      .votes_needed = 3,
      .voters = 5,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true), member(2, 2, true), member(3, 3, true)}},
     kTwoToFour,
     Step::wait,
     "3 are here of the 5 nodes",
     Time(50)},
    {"not for long",
     {.now = Time(50),
      .first = false,
      .votes = 3,
      .votes_needed = 3,
      .voters = 5,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true), member(2, 2, true), member(3, 3, true)}},
     kTwoToFour,
     Step::start,
     "3 nodes"},
    {"all but the lost one start at once",
     {.now = Time(5),
      .first = false,
      .votes = 2,
      .votes_needed = 2,
      .voters = 3,
      .votes_until = Time(100),
      .others_until = Time(50),
      .nodes = {member(1, 1, true), member(2, 2, true)}},
     kTwoToFour,
     Step::start,
     "2 nodes: h1, h2"},
    {"survivors wait for no last call",
     {.now = Time(100), .first = false, .nodes = {member(0, 0, true), member(2, 2, true)}},
     kTwoToFour,
     Step::start,
     "2 nodes: h0, h2"},
    {"survivors end their workers first",
     {.now = Time(100), .first = false, .nodes = {member(0, 0, true), member(2, 2, false)}},
     kTwoToFour,
     Step::wait,
     "the workers on h2 are still ending"},
    {"not while the workers of a lost node may run",
     {.now = Time(100), .not_before = Time(700), .first = false, .nodes = {member(0, 0, true), member(2, 2, true)}},
     kTwoToFour,
     Step::wait,
     "may still run",
     Time(700)},
    {"a survivor alone waits anew",
     {.now = Time(900'000), .since = Time(800'000), .first = false, .nodes = {member(0, 0, true)}},
     kTwo,
     Step::wait,
     "waiting for 1 of 2",
     Time(1'400'000)},
    {"a newcomer makes room for itself",
     {.running = true, .first = false, .nodes = {member(0, 0, false), member(1, 1, false), newcomer(7)}},
     kTwoToFour,
     Step::restart,
     "h7 has come"},
    {"a spare waits outside",
     {.running = true, .first = false, .nodes = {member(0, 0, false), member(1, 1, false), newcomer(7)}},
     kTwo,
     Step::wait,
     "h7 waits as a spare: the job has its 2 nodes"},
    {"a newcomer that has failed again and again",
     {.now = Time(5),
      .running = true,
      .first = false,
      .nodes = {member(0, 0, false), member(1, 1, false), left_out(newcomer(7), 900), left_out(newcomer(8), 700)}},
     kTwoToFour,
     Step::wait,
     "h7 is left out for a while: it has failed again and again",
     Time(700)},
    {"until its time is over",
     {.now = Time(700),
      .running = true,
      .first = false,
      .nodes = {member(0, 0, false), member(1, 1, false), left_out(newcomer(7), 900), left_out(newcomer(8), 700)}},
     kTwoToFour,
     Step::restart,
     "h8 has come"},
    {"survivors start without it",
     {.now = Time(5),
      .first = false,
      .nodes = {member(0, 0, true), left_out(member(1, 1, true), 900), member(2, 2, true)}},
     kTwoToFour,
     Step::start,
     "2 nodes: h0, h2"},
    {"but not below MIN",
     {.now = Time(5), .first = false, .nodes = {member(0, 0, true), left_out(member(1, 1, true), 900)}},
     kTwo,
     Step::start,
     "2 nodes: h0, h1"},
    {"a spare takes its place",
     {.now = Time(5), .first = false, .nodes = {member(0, 0, true), left_out(member(1, 1, true), 900), newcomer(7)}},
     kTwo,
     Step::start,
     "2 nodes: h0, h7"},
    {"the hosting agent is always in",
     {.now = Time(5), .first = false, .nodes = {left_out(member(0, 0, true), 900), member(1, 1, true), newcomer(7)}},
     kTwo,
     Step::start,
     "2 nodes: h0, h1"},
    {"nothing to do",
     {.running = true, .nodes = {member(0, 0, false), member(1, 1, false)}},
     kTwo,
     Step::wait,
     "the job runs"},
    {"static: who is missing",
     {.now = Time(600'000),
      .nodes = {{.id = 1, .host = "h1", .wanted_rank = 0, .ready = true},
                {.id = 2, .host = "h2", .wanted_rank = 2, .ready = true}}},
     kStatic,
     Step::end,
     "2 of 3 nodes: h1, h2; node rank 1 missing"},
};

TEST(Membership, WhatIsToBeDone) {
  for (const Row& row : kRows) {
    const Decision decision = decide(row.situation, row.limits);
    EXPECT_EQ(decision.step, row.step) << row.name;
    EXPECT_THAT(decision.reason, HasSubstr(row.reason)) << row.name;
    EXPECT_EQ(decision.again.count(), row.again.count()) << row.name;
  }
}

TEST(Membership, RanksStayWhereTheyCan) {
  const auto ranks = [](std::vector<Node> nodes, const Limits& limits) {
    return decide({.now = Time(1'000'000), .first = false, .nodes = std::move(nodes)}, limits).ranks;
  };
  // By time at first; the hosting agent is first in any case.
  EXPECT_THAT(ranks({newcomer(5, 9), newcomer(7, 3), newcomer(6, 2)}, kTwoToFour), ElementsAre(5, 6, 7));
  // Node 2 takes the place that node 1 has left; node 3 keeps its own.
  EXPECT_THAT(ranks({member(0, 0, true), member(3, 2, true), newcomer(2)}, kTwoToFour), ElementsAre(0, 2, 3));
  // The last rank is gone: it moves up.
  EXPECT_THAT(ranks({member(0, 0, true), member(3, 2, true)}, kTwoToFour), ElementsAre(0, 3));
  // A node that comes back to its machine has its rank again, before another that came earlier.
  Node back = newcomer(9, 50);
  back.last_rank = 1;
  EXPECT_THAT(ranks({member(0, 0, true), newcomer(8, 10), back}, kTwoToFour), ElementsAre(0, 9, 8));
  // Not by taking it from one that is there.
  EXPECT_THAT(ranks({member(0, 0, true), back, member(1, 1, true)}, kTwoToFour), ElementsAre(0, 1, 9));
}

TEST(Membership, MembersComeBeforeSparesAndSparesByTime) {
  const Decision decision =
      decide({.now = Time(9'000),
              .first = false,
              .nodes = {member(0, 0, true), newcomer(7, 5), newcomer(6, 4), member(1, 1, true), newcomer(8, 3)}},
             {.min_nodes = 2, .max_nodes = 3});
  EXPECT_THAT(decision.ranks, ElementsAre(0, 1, 8));
}

TEST(Membership, NamedRanksAreKept) {
  Node zero{.id = 10, .host = "h0", .wanted_rank = 0, .ready = true};
  Node two{.id = 12, .host = "h2", .wanted_rank = 2, .ready = true, .asked = Time(1)};
  Node one{.id = 11, .host = "h1", .wanted_rank = 1, .ready = true, .asked = Time(2)};
  EXPECT_THAT(decide({.nodes = {zero, two, one}}, kStatic).ranks, ElementsAre(10, 11, 12));
}

TEST(Membership, AThousandNodes) {
  Situation situation{.now = Time(1)};
  for (std::uint64_t id = 0; id < 1000; ++id) situation.nodes.push_back(newcomer(id, int(id)));
  const Decision decision = decide(situation, {.min_nodes = 1000, .max_nodes = 1000});
  EXPECT_EQ(decision.step, Step::start);
  ASSERT_EQ(decision.ranks.size(), 1000u);
  EXPECT_EQ(decision.ranks[999], 999u);
}

TEST(Membership, WhoIsRefusedAndWhy) {
  const Application own{.version = "1", .run_id = "job", .nnodes = "3", .backend = "static", .host = "h0"};
  const std::vector<Node> nodes{{.id = 1, .host = "h0", .wanted_rank = 0}, {.id = 2, .host = "h1", .wanted_rank = 1}};
  Application other = own;
  other.host = "h9";
  other.wanted_rank = 2;
  EXPECT_EQ(refusal(other, own, kStatic, nodes), "");
  const auto with = [&](auto change) {
    Application changed = other;
    change(changed);
    return refusal(changed, own, kStatic, nodes);
  };
  EXPECT_EQ(with([](Application& a) { a.version = "2"; }), "the version of lockstep is '2' on h9 and '1' on h0");
  EXPECT_EQ(with([](Application& a) { a.run_id = "x"; }), "--rdzv-id is 'x' on h9 and 'job' on h0");
  EXPECT_EQ(with([](Application& a) { a.nnodes = "2:3"; }), "--nnodes is '2:3' on h9 and '3' on h0");
  EXPECT_EQ(with([](Application& a) { a.backend = "c10d"; }), "--rdzv-backend is 'c10d' on h9 and 'static' on h0");
  EXPECT_EQ(with([](Application& a) { a.keep_alive = Time(2'500); }),
            "--rdzv-conf keep_alive_interval is '2.5' on h9 and '1' on h0");
  EXPECT_EQ(with([](Application& a) { a.keep_alive = Time(1'001); }),
            "--rdzv-conf keep_alive_interval is '1.001' on h9 and '1' on h0");
  EXPECT_EQ(with([](Application& a) { a.misses = 30; }),
            "--rdzv-conf keep_alive_max_attempt is '30' on h9 and '5' on h0");
  EXPECT_EQ(with([](Application& a) { a.wanted_rank = 1; }), "--node-rank 1 of h9 is taken by h1");
  EXPECT_EQ(with([](Application& a) { a.wanted_rank = 3; }), "--node-rank 3 of h9 is not a number from 0 to 2");
  EXPECT_EQ(with([](Application& a) { a.wanted_rank = -1; }), "--node-rank -1 of h9 is not a number from 0 to 2");
}

}  // namespace
}  // namespace lockstep::rendezvous
