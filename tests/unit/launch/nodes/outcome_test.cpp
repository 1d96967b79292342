#include "lockstep/launch/nodes/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using rendezvous::Done;
using rendezvous::FailureKind;
using rendezvous::Outcome;

EndedNode ended_node(std::uint64_t id, Done done) { return {.id = id, .done = done}; }

Outcome outcome(const EndedGeneration& ended, int max_restarts = 0) {
  History history;
  return outcome_of(ended, history, max_restarts, {});
}

TEST(OutcomeOfNodes, AllWell) {
  const Outcome said = outcome({.nodes = {ended_node(0, {}), ended_node(1, {})}}, 3);
  EXPECT_EQ(said.code, 0);
  EXPECT_FALSE(said.again);
  EXPECT_EQ(said.text, "");
}

TEST(OutcomeOfNodes, SavedAndToBeStartedAgain) {
  EXPECT_EQ(outcome({.nodes = {ended_node(0, {}), ended_node(1, {.code = kExitStopped})}}).code, kExitStopped);
}

TEST(OutcomeOfNodes, TheFirstFailureCountsAndTheOthersAreCounted) {
  const EndedGeneration ended{
      .number = 4,
      .nodes = {ended_node(0, {.code = 1, .fallen = 2}), ended_node(1, {.code = 7, .fallen = 2, .uptime = 60'000})},
      .blames = {{.failure = {FailureKind::connection, 1.0, 0.1}, .node = 0, .code = 1, .text = "follower\n"},
                 {.failure = {FailureKind::ended, 2.0, 0.1}, .node = 1, .code = 7, .text = "first\n"}}};
  Outcome said = outcome(ended);
  EXPECT_EQ(said.generation, 4);
  EXPECT_EQ(said.code, 7);
  EXPECT_EQ(said.blamed, 1);
  EXPECT_EQ(said.text, "first\nlockstep: 3 more ranks ended after it\n");
  EXPECT_FALSE(said.again);
  said = outcome(ended, 1);
  EXPECT_TRUE(said.again && said.counts);
  EXPECT_EQ(said.restarts, 1);
}

TEST(OutcomeOfNodes, BadInputOnAnyNodeIsNotTriedAgain) {
  const Outcome said = outcome({.nodes = {ended_node(0, {.code = 2, .bad_input = true})},
                                .blames = {{.failure = {FailureKind::told, 1.0, 0.1}, .node = 0, .code = 2}}},
                               3);
  EXPECT_FALSE(said.again);
  EXPECT_EQ(said.why_not, "bad input stays bad");
}

TEST(OutcomeOfNodes, ALostNodeIsAFailure) {
  const Outcome said = outcome({.nodes = {ended_node(0, {.code = 1, .fallen = 1})},
                                .blames = {{.failure = {FailureKind::node_lost, 1.0, 0}, .node = 1, .text = "lost\n"}}},
                               1);
  EXPECT_TRUE(said.again && said.counts);
  EXPECT_EQ(said.text, "lost\nlockstep: 1 more rank ended after it\n");
}

TEST(OutcomeOfNodes, AStopLeavesTheOthersToGoOnWhereTheyMay) {
  EndedGeneration ended{.nodes = {ended_node(0, {.code = 1}), ended_node(1, {.code = 143, .signal = SIGTERM})},
                        .stop = Stop{.signal = SIGTERM, .host = "h1"},
                        .others = 1,
                        .min_nodes = 2};
  EXPECT_EQ(outcome(ended, 3).code, 128 + SIGTERM);
  EXPECT_FALSE(outcome(ended, 3).again);
  EXPECT_EQ(outcome(ended).text, "lockstep: the agent on h1 was ended by SIGTERM\n");
  ended.min_nodes = 1;
  EXPECT_TRUE(outcome(ended).again);
  EXPECT_FALSE(outcome(ended).counts);
  ended.host_stops = true;
  EXPECT_FALSE(outcome(ended).again);
}

// The workers may take their grace period to end, and an agent may get a signal in it.
TEST(OutcomeOfNodes, AStopBehindAFailureOnlyKeepsItFromStartingAgain) {
  struct Case {
    const char* what;
    int max_restarts, others, min_nodes;
    bool host_stops, again;
  };
  for (const Case& c :
       {Case{"no restarts are left", 0, 1, 1, false, false}, Case{"the others may go on", 3, 1, 1, false, true},
        Case{"too few are left", 3, 1, 2, false, false}, Case{"the hosting agent leaves", 3, 1, 1, true, false}}) {
    const Outcome said =
        outcome({.nodes = {ended_node(0, {.code = 3, .fallen = 1}), ended_node(1, {.code = 1, .signal = SIGTERM})},
                 .blames = {{.failure = {FailureKind::ended, 1.0, 0.1}, .node = 0, .code = 3, .text = "first\n"}},
                 .stop = Stop{.signal = SIGTERM, .host = "h1"},
                 .host_stops = c.host_stops,
                 .others = c.others,
                 .min_nodes = c.min_nodes},
                c.max_restarts);
    EXPECT_EQ(said.code, 3) << c.what;
    EXPECT_EQ(said.text, "first\n") << c.what;
    EXPECT_EQ(said.blamed, 0) << c.what;
    EXPECT_EQ(said.again, c.again) << c.what;
    EXPECT_EQ(said.counts, c.again) << c.what;
  }
}

TEST(OutcomeOfNodes, WhatFollowsFromAStopIsNoFailure) {
  for (const FailureKind kind : {FailureKind::connection, FailureKind::node_lost}) {
    const Outcome said = outcome({.nodes = {ended_node(0, {.code = 1, .fallen = 1})},
                                  .blames = {{.failure = {kind, 1.0, 0.1}, .node = 0, .text = "broken\n"}},
                                  .stop = Stop{.signal = SIGTERM, .host = "h1"},
                                  .others = 1,
                                  .min_nodes = 2});
    EXPECT_EQ(said.code, 128 + SIGTERM);
    EXPECT_EQ(said.text, "lockstep: the agent on h1 was ended by SIGTERM\n");
  }
}

TEST(OutcomeOfNodes, NothingStartsBesideAProcessThatIsLeft) {
  const EndedGeneration stopped{.nodes = {ended_node(0, {.code = 1, .left_behind = true})},
                                .stop = Stop{.signal = SIGTERM, .host = "h1"},
                                .others = 1};
  const EndedGeneration joined{.nodes = {ended_node(0, {.code = 1, .left_behind = true})}, .newcomer = "h2 has come"};
  for (const EndedGeneration& ended : {stopped, joined}) {
    const Outcome said = outcome(ended, 3);
    EXPECT_FALSE(said.again);
    EXPECT_EQ(said.why_not, "a process of this attempt could not be killed");
    EXPECT_EQ(said.text.find("starting again"), std::string::npos);
  }
}

TEST(OutcomeOfNodes, ANewcomerMakesItStartAgainUnlessAllIsDone) {
  EndedGeneration ended{.nodes = {ended_node(0, {.code = 1})}, .newcomer = "h2 has come"};
  EXPECT_TRUE(outcome(ended).again);
  EXPECT_FALSE(outcome(ended).counts);
  EXPECT_EQ(outcome(ended).text, "lockstep: starting again with other nodes: h2 has come\n");
  ended.nodes = {ended_node(0, {})};
  EXPECT_FALSE(outcome(ended).again);
}

// That of the newcomer's end, where the workers were sent a signal for it; else somebody else's.
TEST(OutcomeOfNodes, AStopIsNotUndoneByANewcomer) {
  EndedGeneration ended{.nodes = {ended_node(0, {.code = kExitStopped}), ended_node(1, {.code = kExitStopped})},
                        .newcomer = "h2 has come"};
  EXPECT_FALSE(outcome(ended).again);
  EXPECT_EQ(outcome(ended).code, kExitStopped);
  ended.told_to_end = true;
  EXPECT_TRUE(outcome(ended).again);
}

}  // namespace
}  // namespace lockstep::launch
