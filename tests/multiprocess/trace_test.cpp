// What the ranks of a job that came to a stop leave, and what `lockstep trace` makes of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tests/support/job.h"
#include "tests/support/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::Job;

struct Outcome {
  std::string text;
  nlohmann::json json;
  std::string err;  // the job's
};

class Trace : public ::testing::TestWithParam<const char*> {
 protected:
  // What `lockstep trace` says of three ranks, of which rank 1 does that.
  Outcome explained(const std::string& what, int code) {
    Job job({LOCKSTEP_PROGRAM, "run", "-n", "3", "--grace-period", "1", TRACE_WORKER, what, GetParam()},
            {"LOCKSTEP_TRACE_DIR=" + folder_.path()});
    EXPECT_EQ(job.wait(), code) << job.err();
    EXPECT_TRUE(job.nothing_left());
    Job told({LOCKSTEP_PROGRAM, "trace", folder_.path()});
    EXPECT_EQ(told.wait(), 0) << told.err();
    Job as_json({LOCKSTEP_PROGRAM, "trace", "--json", folder_.path()});
    EXPECT_EQ(as_json.wait(), 0) << as_json.err();
    return {told.out(), nlohmann::json::parse(as_json.out(), nullptr, false), job.err()};
  }

  const testing::ScratchFolder folder_;
};

using Ranks = std::vector<int>;

INSTANTIATE_TEST_SUITE_P(Over, Trace, ::testing::Values("shm", "tcp"), [](const auto& info) { return info.param; });

TEST_P(Trace, ARankThatHangsIsNamed) {
  const Outcome outcome = explained("hung", kExitFailure);
  EXPECT_EQ(outcome.json["culprits"], Ranks{1}) << outcome.text;
  EXPECT_EQ(outcome.json["ranks"], (Ranks{0, 1, 2})) << "it leaves its own";
  EXPECT_EQ(outcome.json["stops"][0]["not_arrived"], Ranks{1});
  EXPECT_THAT(outcome.text, HasSubstr("stopped in collective 4 of world: all_reduce(2x3 Float, op sum), step 3\n"));
  EXPECT_THAT(outcome.text, HasSubstr("  not arrived: rank 1\n"));
  EXPECT_THAT(outcome.text, HasSubstr("rank 1: at step 3, forward; its last: collective 3 of world, "
                                      "all_reduce(2x3 Float, op sum), step 2, ended at "));
  EXPECT_THAT(outcome.text, HasSubstr("culprit: rank 1 did not come\n"));
}

TEST_P(Trace, ARankThatIsLateIsNamed) { EXPECT_EQ(explained("late", kExitFailure).json["culprits"], Ranks{1}); }

TEST_P(Trace, ARankThatIsKilledIsNamedByTheOthers) {
  const Outcome outcome = explained("killed", 128 + SIGKILL);
  EXPECT_EQ(outcome.json["culprits"], Ranks{1}) << outcome.text;
  EXPECT_EQ(outcome.json["no_trace"], Ranks{1});
  EXPECT_THAT(outcome.text, HasSubstr("rank 1: no trace; it took part in collective 3 of world, all_reduce("));
}

TEST_P(Trace, ARankThatThrowsIsNamedWithItsWords) {
  const Outcome outcome = explained("thrown", 128 + SIGABRT);
  EXPECT_EQ(outcome.json["culprits"], Ranks{1}) << outcome.text;
  EXPECT_EQ(outcome.json["failure"]["cause"], "the learning rate is nan");
}

TEST_P(Trace, ARankInAnotherCollectiveIsNamed) {
  const Outcome outcome = explained("other", kExitFailure);
  EXPECT_EQ(outcome.json["culprits"], Ranks{1}) << outcome.text;
  EXPECT_EQ(outcome.json["mismatches"][0]["number"], 4);
  EXPECT_THAT(outcome.text, HasSubstr("  rank 1: broadcast(2x3 Float, root 0), step 3\n"));
}

TEST_P(Trace, OfGroupsThatWaitForEachOtherTheLastIsNamed) {
  const Outcome outcome = explained("part", kExitFailure);
  EXPECT_EQ(outcome.json["culprits"], Ranks{1}) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("stopped in collective 1 of world/1: barrier(), step 3\n"));
}

TEST_P(Trace, AMessageThatWasNotSentIsNamed) {
  const Outcome outcome = explained("unsent", kExitFailure);
  EXPECT_THAT(outcome.text, HasSubstr("stopped in message 1 of world: recv(4 Float, from rank 1, tag 7), step 3\n"));
  bool is_told = false;
  for (const auto& stop : outcome.json["stops"])
    is_told = is_told || (stop["call"]["kind"] == "recv" && stop["not_arrived"] == Ranks{1});
  EXPECT_TRUE(is_told) << outcome.text;
}

TEST_P(Trace, OfAJobThatIsWellThereIsNone) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "3", TRACE_WORKER, "none", GetParam()},
          {"LOCKSTEP_TRACE_DIR=" + folder_.path()});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(folder_.entries(), 0u);
}

class TraceCommand : public ::testing::Test {
 protected:
  const testing::ScratchFolder folder_;
};

// Beside the logs, where the launcher keeps any; of each attempt.
TEST_F(TraceCommand, TracesLieBesideTheLogs) {
  Job job(
      {LOCKSTEP_PROGRAM, "run", "-n", "2", "--max-restarts", "1", "--log-dir", folder_.path(), TRACE_WORKER, "thrown"});
  EXPECT_EQ(job.wait(), 128 + SIGABRT) << job.err();
  Job both({LOCKSTEP_PROGRAM, "trace", folder_.path()});
  EXPECT_EQ(both.wait(), kExitUsage);
  EXPECT_THAT(both.err(), HasSubstr("has traces of the attempts 0, 1: --attempt N picks one\n"));
  Job last({LOCKSTEP_PROGRAM, "trace", folder_.path(), "--attempt", "1"});
  EXPECT_EQ(last.wait(), 0) << last.err();
  EXPECT_THAT(last.out(), HasSubstr("culprit: rank 1 did not come\n"));
}

TEST_F(TraceCommand, TheRingHasAsManyCallsAsAskedFor) {
  Job job({LOCKSTEP_PROGRAM, "run", "-n", "2", TRACE_WORKER, "thrown"},
          {"LOCKSTEP_TRACE_DIR=" + folder_.path(), "LOCKSTEP_TRACE_BUFFER_SIZE=2"});
  EXPECT_EQ(job.wait(), 128 + SIGABRT) << job.err();
  const auto trace = nlohmann::json::parse(testing::read_file(folder_.file("trace_attempt_0_rank_0.json")));
  EXPECT_EQ(trace["calls"].size(), 2u);
  EXPECT_EQ(trace["begun"], 4);
  Job none({LOCKSTEP_PROGRAM, "run", "-n", "2", TRACE_WORKER, "thrown"},
           {"LOCKSTEP_TRACE_DIR=" + folder_.file("none"), "LOCKSTEP_TRACE_BUFFER_SIZE=0"});
  EXPECT_EQ(none.wait(), 128 + SIGABRT) << none.err();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("none")));
  Job wrong({TRACE_WORKER}, {"LOCKSTEP_TRACE_BUFFER_SIZE=many"});
  EXPECT_EQ(wrong.wait(), kExitUsage);
  EXPECT_THAT(wrong.err(), HasSubstr("LOCKSTEP_TRACE_BUFFER_SIZE is 'many': a number of calls from 0 to 1000000"));
}

// Where its ranks meet in a step sends nothing over the group, and the others may be computing when one is gone.
TEST_F(TraceCommand, OfATrainingWhoseRankIsKilledThatRankIsNamed) {
  for (const int victim : {0, 1, 2}) {
    const testing::ScratchFolder traces;
    Job job({LOCKSTEP_PROGRAM, "train", "-n", "3", "--dataset", "digits", "--model", "mlp", "--max-steps", "100000000",
             "--batch-size", "10", "--print-freq", "1", "--no-eval"},
            {"LOCKSTEP_TRACE_DIR=" + traces.path()});
    job.wait_for_lines(20);
    kill(testing::pid_of_rank(job, victim), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.nothing_left());
    Job told({LOCKSTEP_PROGRAM, "trace", "--json", traces.path()});
    EXPECT_EQ(told.wait(), 0) << told.err();
    const auto said = nlohmann::json::parse(told.out(), nullptr, false);
    EXPECT_EQ(said["culprits"], Ranks{victim}) << told.out();
    EXPECT_EQ(said["no_trace"], Ranks{victim}) << told.out();
  }
}

TEST_F(TraceCommand, WrongUseIsOneLine) {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {LOCKSTEP_PROGRAM, "trace"});
    Job job(arguments);
    EXPECT_EQ(job.wait(), kExitUsage);
    EXPECT_EQ(job.out(), "");
    EXPECT_THAT(job.err(), ::testing::MatchesRegex("lockstep: error: [^\n]*\n"));
    return job.err();
  };
  EXPECT_THAT(refusal({}), HasSubstr("no trace given"));
  EXPECT_THAT(refusal({folder_.path()}), HasSubstr("has no trace"));
  EXPECT_THAT(refusal({folder_.file("none")}), HasSubstr("none: cannot be read"));
  EXPECT_THAT(refusal({folder_.write("a.json", "{\"format\":\"lockstep tra")}), HasSubstr("is no whole trace"));
  EXPECT_THAT(refusal({"--attempt", "x", folder_.path()}), HasSubstr("--attempt"));
}

}  // namespace
}  // namespace lockstep
