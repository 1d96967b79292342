#include "lockstep/trace/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Ranks = std::vector<int>;

constexpr std::int64_t kSecond = 1'000'000;

// A call that begins `at` microseconds behind a moment and takes one; `open`: it has not ended.
TracedCall call(std::uint64_t number, const std::string& kind, std::int64_t at, bool open = false,
                std::int64_t elements = 6) {
  return {.number = number,
          .kind = kind,
          .dtype = kind == "barrier" ? "" : "Float",
          .sizes = kind == "barrier" ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{elements},
          .elements = kind == "barrier" ? 0 : elements,
          .detail = kind == "all_reduce" ? "op sum" : "",
          .phase = "forward",
          .step = 12,
          .begin = 1000 * kSecond + at,
          .end = open ? 0 : 1000 * kSecond + at + 1};
}

TracedCall message(const std::string& kind, int peer, std::uint64_t number, std::int64_t at, bool open) {
  TracedCall made = call(number, kind, at, open);
  made.peer = peer;
  return made;
}

RankTrace trace_of(int rank, std::vector<TracedCall> calls, int world = 3) {
  RankTrace trace{.run = "a run", .rank = rank, .world = world, .step = 12, .phase = "forward"};
  Ranks all;
  for (int each = 0; each < world; ++each) all.push_back(each);
  trace.groups = {{"world", all}, {"world/1", {0, 1}}};
  if (world > 2) trace.groups.push_back({"world/2", {1, 2}});
  trace.calls = std::move(calls);
  return trace;
}

TEST(Explain, ARankThatDidNotComeIsToBlame) {
  const Explanation e = explain({trace_of(0, {call(1, "barrier", 0), call(2, "all_reduce", 20, true)}),
                                 trace_of(1, {call(1, "barrier", 0)}),
                                 trace_of(2, {call(1, "barrier", 0), call(2, "all_reduce", 10, true)})});
  EXPECT_EQ(e.culprits, Ranks{1});
  ASSERT_EQ(e.stops.size(), 1u);
  EXPECT_EQ(e.stops[0].call.number, 2u);
  EXPECT_EQ(e.stops[0].arrived.at(0).rank, 2) << "the earliest first";
  EXPECT_EQ(e.stops[0].absent, Ranks{1});
  EXPECT_TRUE(e.mismatches.empty());
  const std::string text = explanation_text(e);
  EXPECT_THAT(text, HasSubstr("stopped in collective 2 of world: all_reduce(6 Float, op sum), step 12\n"
                              "  arrived: rank 2 at 00:16:40.000, rank 0 0.010 ms later\n"
                              "  not arrived: rank 1\n"));
  EXPECT_THAT(text, HasSubstr("rank 1: at step 12, forward; its last: collective 1 of world, barrier(), step 12, ended "
                              "at 00:16:40.000\n"
                              "culprit: rank 1 did not come\n"));
}

TEST(Explain, ARankWithoutAFileIsToBlame) {
  const Explanation e = explain({trace_of(0, {call(1, "barrier", 0), call(2, "all_reduce", 20, true)}),
                                 trace_of(2, {call(1, "barrier", 0), call(2, "all_reduce", 10, true)})});
  EXPECT_EQ(e.culprits, Ranks{1});
  EXPECT_EQ(e.without_file, Ranks{1});
  EXPECT_EQ(e.stops.at(0).without_file, Ranks{1});
  EXPECT_THAT(explanation_text(e), HasSubstr("rank 1: no trace; it took part in collective 1 of world, barrier()"));
  EXPECT_THAT(explanation_text(e), HasSubstr("culprit: rank 1 did not come and left no trace: killed, stopped"));
}

TEST(Explain, RanksThatCallDifferentThingsAreNamedByTheMany) {
  const Explanation e = explain({trace_of(0, {call(1, "barrier", 0), call(2, "all_reduce", 1, true)}),
                                 trace_of(1, {call(1, "barrier", 0), call(2, "broadcast", 2, true)}),
                                 trace_of(2, {call(1, "barrier", 0), call(2, "all_reduce", 3, true)})});
  EXPECT_EQ(e.culprits, Ranks{1});
  ASSERT_EQ(e.mismatches.size(), 1u);
  EXPECT_EQ(e.mismatches[0].number, 2u);
  EXPECT_EQ(e.mismatches[0].sides.at(0).ranks, (Ranks{0, 2}));
  EXPECT_THAT(explanation_text(e), HasSubstr("ranks disagree in collective 2 of world:\n"
                                             "  ranks 0, 2: all_reduce(6 Float, op sum), step 12\n"
                                             "  rank 1: broadcast(6 Float), step 12\n"));
  EXPECT_THAT(explanation_text(e), HasSubstr("culprit: rank 1 calls something else than most do"));
}

TEST(Explain, WhatDiffersIsKindDtypeElementsOrOperationAndNotTheShape) {
  const auto differs = [](auto change) {
    TracedCall other = call(1, "all_reduce", 0, true);
    change(other);
    return !explain({trace_of(0, {call(1, "all_reduce", 0, true)}, 2), trace_of(1, {other}, 2)}).mismatches.empty();
  };
  EXPECT_FALSE(differs([](TracedCall&) {}));
  EXPECT_FALSE(differs([](TracedCall& c) { c.sizes = {2, 3}; }));
  EXPECT_FALSE(differs([](TracedCall& c) { c.label = "bucket 1"; }));
  EXPECT_TRUE(differs([](TracedCall& c) { c.kind = "broadcast"; }));
  EXPECT_TRUE(differs([](TracedCall& c) { c.dtype = "Double"; }));
  EXPECT_TRUE(differs([](TracedCall& c) { c.elements = 7; }));
  EXPECT_TRUE(differs([](TracedCall& c) { c.detail = "op max"; }));
}

TEST(Explain, OfTwoRanksThatDisagreeBothAreNamed) {
  const Explanation e =
      explain({trace_of(0, {call(1, "all_reduce", 0, true)}, 2), trace_of(1, {call(1, "all_reduce", 1, true, 7)}, 2)});
  EXPECT_EQ(e.culprits, (Ranks{0, 1}));
  EXPECT_THAT(e.verdict, HasSubstr("ranks 0, 1 call different things"));
}

// Rank 2 is missed by 1, which is missed by 0.
TEST(Explain, WhoIsMissedAndWaitsHimselfIsNotToBlame) {
  TracedCall in_part = call(1, "barrier", 5, true);
  in_part.group = 2;
  const Explanation e =
      explain({trace_of(0, {call(1, "all_reduce", 0, true)}), trace_of(1, {in_part}), trace_of(2, {})});
  EXPECT_EQ(e.culprits, Ranks{2});
  ASSERT_EQ(e.stops.size(), 2u);
  EXPECT_EQ(e.stops[0].absent, (Ranks{1, 2}));
  EXPECT_EQ(e.stops[1].group, "world/2");
  EXPECT_THAT(explanation_text(e), HasSubstr("rank 2: at step 12, forward; it has called nothing"));
}

TEST(Explain, RanksThatWaitForOneAnotherAreAllNamed) {
  TracedCall in_part = call(1, "barrier", 5, true);
  in_part.group = 1;
  const Explanation e = explain({trace_of(0, {call(1, "all_reduce", 0, true)}, 2), trace_of(1, {in_part}, 2)});
  EXPECT_EQ(e.culprits, (Ranks{0, 1}));
  EXPECT_THAT(e.verdict, HasSubstr("wait for one another"));
}

TEST(Explain, AMessageWaitsForItsPeer) {
  const std::vector<RankTrace> traces = {trace_of(0, {message("recv", 1, 1, 0, false), message("recv", 1, 2, 5, true)}),
                                         trace_of(1, {message("send", 0, 1, 0, false)}), trace_of(2, {})};
  Explanation e = explain(traces);
  EXPECT_EQ(e.culprits, Ranks{1});
  ASSERT_EQ(e.stops.size(), 1u);
  EXPECT_THAT(explanation_text(e), HasSubstr("stopped in message 2 of world: recv(6 Float, from rank 1), step 12"));
  e = explain({traces[0], traces[2]});
  EXPECT_EQ(e.stops.at(0).without_file, Ranks{1});
  // Both are in it: one stop, and nobody is missed.
  e = explain({trace_of(0, {message("recv", 1, 1, 0, true)}, 2), trace_of(1, {message("send", 0, 1, 3, true)}, 2)});
  ASSERT_EQ(e.stops.size(), 1u);
  EXPECT_EQ(e.stops[0].arrived.size(), 2u);
  EXPECT_TRUE(e.culprits.empty());
}

// Ranks that compute when another fails are missed as well.
TEST(Explain, OfSeveralThatAreMissedTheOneThatTheGroupHasHeardOfIsToBlame) {
  std::vector<RankTrace> traces = {trace_of(0, {call(1, "all_reduce", 0, true)}), trace_of(1, {}), trace_of(2, {})};
  EXPECT_EQ(explain(traces).culprits, (Ranks{1, 2}));
  traces[0].failure = Failure{.rank = 2, .step = 12, .phase = "forward", .cause = "the learning rate is nan"};
  const Explanation e = explain(traces);
  EXPECT_EQ(e.culprits, Ranks{2});
  EXPECT_THAT(explanation_text(e),
              HasSubstr("the group ended by: rank 2, step 12, forward: the learning rate is nan\n"));
  // Of one that is missed nowhere the group's word is not enough where others are.
  traces[0].failure->rank = 0;
  EXPECT_EQ(explain(traces).culprits, (Ranks{1, 2}));
}

// Killed by SIGKILL while the others computed, who then got their SIGTERM.
TEST(Explain, WhereNothingElseIsKnownThoseWithoutAFileAreNamed) {
  std::vector<RankTrace> traces = {trace_of(0, {call(1, "barrier", 0)}), trace_of(2, {call(1, "barrier", 0)})};
  const Explanation e = explain(traces);
  EXPECT_EQ(e.culprits, Ranks{1});
  EXPECT_THAT(explanation_text(e), HasSubstr("rank 1: no trace; it took part in collective 1 of world, barrier()"));
  EXPECT_THAT(explanation_text(e), HasSubstr("culprit: rank 1 left no trace: killed, stopped, or its file is "
                                             "elsewhere; nobody is missed in a collective\n"));
  traces[0].failure = Failure{.rank = 2, .step = 12, .phase = "forward", .cause = "the learning rate is nan"};
  EXPECT_EQ(explain(traces).culprits, Ranks{2}) << "what the group has heard goes before";
}

TEST(Explain, WhereNobodyIsMissedTheFailureIsWhatIsKnown) {
  std::vector<RankTrace> traces = {trace_of(0, {call(1, "barrier", 0)}, 2), trace_of(1, {call(1, "barrier", 0)}, 2)};
  EXPECT_TRUE(explain(traces).culprits.empty());
  EXPECT_THAT(explanation_text(explain(traces)), HasSubstr("verdict: nobody is missed in a collective\n"));
  traces[1].failure = Failure{.rank = 1, .phase = "update", .cause = "no more data"};
  EXPECT_EQ(explain(traces).culprits, Ranks{1});
}

TEST(Explain, CallsThatAllHaveComeToAreNotToldBesideThoseThatSomeAreMissedIn) {
  TracedCall in_part = call(1, "barrier", 5, true);
  in_part.group = 1;
  std::vector<RankTrace> traces = {trace_of(0, {in_part}), trace_of(1, {in_part}),
                                   trace_of(2, {call(1, "all_reduce", 0, true)})};
  Explanation e = explain(traces);
  ASSERT_EQ(e.stops.size(), 1u);
  EXPECT_EQ(e.stops[0].group, "world");
  traces[2].calls.clear();
  e = explain(traces);
  ASSERT_EQ(e.stops.size(), 1u) << "there is nothing else to tell";
  EXPECT_EQ(e.stops[0].group, "world/1");
}

// Rings that reach back to different calls.
TEST(Explain, ARankWhoseRingBeginsLaterWasThere) {
  const Explanation e =
      explain({trace_of(0, {call(1, "all_reduce", 0, true)}, 2), trace_of(1, {call(5, "barrier", 9)}, 2)});
  EXPECT_TRUE(e.stops.at(0).absent.empty());
}

TEST(Explain, AsJsonItIsTheSame) {
  std::vector<RankTrace> traces = {trace_of(0, {call(1, "barrier", 0), call(2, "all_reduce", 20, true)}),
                                   trace_of(1, {call(1, "barrier", 0), call(2, "broadcast", 30, true)})};
  traces[0].failure = Failure{.rank = 1, .step = 12, .phase = "forward", .cause = "ranks disagree"};
  traces[0].calls[1].label = "bucket 3";
  const std::string text = explanation_json(explain(traces));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(json["culprits"], (Ranks{0, 1}));
  EXPECT_EQ(json["no_trace"], Ranks{2});
  EXPECT_EQ(json["failure"]["cause"], "ranks disagree");
  EXPECT_EQ(json["mismatches"][0]["number"], 2);
  EXPECT_EQ(json["mismatches"][0]["sides"][0]["call"]["label"], "bucket 3");
  EXPECT_EQ(json["mismatches"][0]["sides"][1]["call"]["kind"], "broadcast");
  EXPECT_EQ(json["stops"][0]["arrived"][1]["rank"], 1);
  EXPECT_EQ(json["stops"][0]["no_trace"], Ranks{2});
  EXPECT_EQ(json["last"][2]["has_trace"], false);
}

}  // namespace
}  // namespace lockstep::trace
