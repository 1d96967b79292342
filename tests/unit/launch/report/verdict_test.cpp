#include "lockstep/launch/report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "lockstep/base/segment.h"

namespace lockstep::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr End exited(int rank, int code) { return {.rank = rank, .pid = 1000 + rank, .exit_code = code}; }
constexpr End killed(int rank, int signal) { return {.rank = rank, .pid = 1000 + rank, .signal = signal}; }

TEST(Describe, InWords) {
  EXPECT_EQ(describe(killed(0, SIGKILL)), "killed by SIGKILL");
  EXPECT_EQ(describe(killed(0, SIGSEGV)), "killed by SIGSEGV");
  EXPECT_EQ(describe(killed(0, SIGRTMIN + 3)), "killed by signal " + std::to_string(SIGRTMIN + 3));
  EXPECT_EQ(describe(exited(0, 3)), "exit code 3");
  EXPECT_EQ(exit_code(killed(0, SIGKILL)), 137);
  EXPECT_EQ(exit_code(exited(0, 3)), 3);
}

TEST(FirstFailure, TheFirstInTimeThatFailed) {
  const Verdict verdict = first_failure({exited(2, 0), killed(1, SIGKILL), exited(0, 1)}, std::nullopt);
  EXPECT_EQ(verdict.end.rank, 1);
  EXPECT_EQ(verdict.code, 137);
  EXPECT_FALSE(verdict.still_running);
}

TEST(FirstFailure, OfTwoAtTheSameTimeTheOneThatWasSeenFirst) {
  EXPECT_EQ(first_failure({exited(1, 3), exited(0, 4)}, std::nullopt).end.rank, 1);
}

TEST(FirstFailure, TheRankThatTheSlotNamesWasFirst) {
  const Failure told{.rank = 1, .cause = "disk full", .exit_code = 1};
  const Verdict verdict = first_failure({exited(0, 1), exited(1, 9)}, told);
  EXPECT_EQ(verdict.end.rank, 1);
  EXPECT_EQ(verdict.code, 9);
}

TEST(FirstFailure, TheOneThatToldMayStillRun) {
  const Failure told{.rank = 1, .cause = "bad flag", .exit_code = 2};
  const Verdict verdict = first_failure({exited(0, 1)}, told);
  EXPECT_EQ(verdict.end.rank, 1);
  EXPECT_TRUE(verdict.still_running);
  EXPECT_EQ(verdict.code, 2);
}

TEST(FirstFailure, OneThatEndedWellIsNotToBlame) {
  // Rank 1 left too early; rank 0, which waited for it, failed.
  const Failure told{.rank = 1, .cause = "left the group", .exit_code = 1};
  const Verdict verdict = first_failure({exited(1, 0), exited(0, 1)}, told);
  EXPECT_EQ(verdict.end.rank, 0);
  EXPECT_EQ(verdict.code, 1);
}

TEST(FirstFailure, ASlotOfNobodyNamesNobody) {
  const Verdict verdict = first_failure({exited(0, 4)}, Failure{.rank = -1, .cause = "unknown"});
  EXPECT_EQ(verdict.end.rank, 0);
  EXPECT_EQ(verdict.code, 4);
}

TEST(FirstFailure, IsNeverExitCodeZero) {
  const Verdict verdict = first_failure({exited(0, 1)}, Failure{.rank = 1, .cause = "odd", .exit_code = 0});
  EXPECT_NE(verdict.code, 0);
}

TEST(FirstFailure, AnErrorFileTellsWhenItHappened) {
  // Rank 1 threw first, but was slow to end: rank 0, which only missed it, was faster.
  const auto at = [](End end, double when) {
    end.when = when;
    return end;
  };
  const std::vector<End> ends{at(exited(0, 1), 12.0), at(exited(1, 7), 13.0)};
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 1, .when = 11.0}}).end.rank, 1);
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 1, .when = 11.0}, {.rank = 0, .when = 10.5}}).end.rank, 0);
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 1, .when = 12.5}}).end.rank, 0);
}

TEST(FirstFailure, OneThatHasWrittenItsErrorMayStillRun) {
  const Verdict verdict =
      first_failure({{.rank = 0, .exit_code = 1, .when = 12.0}}, std::nullopt, {{.rank = 1, .when = 11.0}});
  EXPECT_EQ(verdict.end.rank, 1);
  EXPECT_TRUE(verdict.still_running);
  EXPECT_EQ(verdict.code, 1);
}

TEST(FirstFailure, AnErrorFileOfOneThatEndedWellIsNoFailure) {
  const std::vector<End> ends{{.rank = 1, .when = 11.0}, {.rank = 0, .exit_code = 3, .when = 12.0}};
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 1, .when = 10.0}}).end.rank, 0);
}

TEST(FirstFailure, AKilledWorkerPrecedesThoseWhoNoticedIt) {
  // Its memory was still being freed when the peer had seen the closed connection and ended.
  const std::vector<End> ends{{.rank = 0, .exit_code = 1, .when = 12.0}, {.rank = 1, .signal = SIGKILL, .when = 12.3}};
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 0, .when = 11.9}}).end.rank, 1);
  // One who aborts may well be a follower, and what came long before was no follower's.
  const std::vector<End> aborted{{.rank = 0, .exit_code = 1, .when = 12.0},
                                 {.rank = 1, .signal = SIGABRT, .when = 12.3}};
  EXPECT_EQ(first_failure(aborted, std::nullopt, {{.rank = 0, .when = 11.9}}).end.rank, 0);
  EXPECT_EQ(first_failure(ends, std::nullopt, {{.rank = 0, .when = 9.0}}).end.rank, 0);
}

TEST(OneLine, IsFitForATerminal) {
  EXPECT_EQ(one_line("a\nb"), "a");
  EXPECT_EQ(one_line("\x1b[31mred\x7f"), "?[31mred?");
  EXPECT_EQ(one_line(std::string(2000, 'x')).size(), 504u);
}

TEST(Cause, TheBestThatIsKnown) {
  Verdict verdict = first_failure({exited(1, 1)}, std::nullopt);
  EXPECT_EQ(cause(verdict), "");
  verdict.error = WorkerError{.message = "ValueError: bad\nand more", .traceback = "..."};
  EXPECT_EQ(cause(verdict), "ValueError: bad") << "one line";
  verdict.told = Failure{.rank = 1, .step = 3, .phase = "update", .cause = "disk full"};
  EXPECT_EQ(cause(verdict), "rank 1, step 3, update: disk full");
  verdict.out_of_memory = "out of memory";
  EXPECT_EQ(cause(verdict), "out of memory");
}

TEST(Report, NamesRankHostPidStepPhase) {
  const Verdict verdict = first_failure({killed(1, SIGKILL)}, std::nullopt);
  EXPECT_EQ(report(verdict, Whereabouts{.step = 17, .phase = "update"}, "node7"),
            "lockstep: rank 1 failed: killed by SIGKILL (host node7, pid 1001, step 17, update)\n");
  EXPECT_EQ(report(verdict, std::nullopt, "node7"),
            "lockstep: rank 1 failed: killed by SIGKILL (host node7, pid 1001)\n");
}

TEST(Report, TheCauseThatTheWorkerTold) {
  const Failure told{.rank = 1, .step = 3, .phase = "forward", .cause = "disk full", .exit_code = 1};
  const std::string text = report(first_failure({exited(1, 1)}, told), std::nullopt, "h");
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 1 failed: exit code 1"), HasSubstr("cause: rank 1, step 3, forward: disk full")));
}

TEST(Report, APeersGuessAboutAKilledRankIsNotRepeated) {
  const Failure told{.rank = 1, .cause = "its process (pid 1001) ended without a word"};
  EXPECT_THAT(report(first_failure({killed(1, SIGKILL)}, told), std::nullopt, "h"), Not(HasSubstr("without a word")));
}

TEST(Report, BadInputIsToldByTheWorkerAlone) {
  const Failure told{.rank = 1, .cause = "no such file", .exit_code = kExitUsage};
  EXPECT_EQ(report(first_failure({exited(0, 2), exited(1, 2)}, told), std::nullopt, "h"), "");
  // On its own node. The others have not seen it.
  EXPECT_EQ(report_of_bad_input(first_failure({exited(0, 2), exited(1, 2)}, told), "h", 4),
            "lockstep: rank 5 on h: wrong use or bad input: " + told.to_string() + "\n");
  // A program of the user's that exits with 2 has told nobody.
  EXPECT_NE(report(first_failure({exited(1, 2)}, std::nullopt), std::nullopt, "h"), "");
  // Nor has one that had to be ended.
  EXPECT_THAT(report(first_failure({exited(0, 2)}, told), std::nullopt, "h"),
              AllOf(HasSubstr("rank 1 failed"), HasSubstr("no such file")));
}

TEST(Report, FollowersAreCounted) {
  const auto followers = [](const std::vector<End>& ends, const std::optional<Failure>& told) {
    return report_followers(first_failure(ends, told), ends);
  };
  EXPECT_EQ(followers({exited(1, 1), exited(0, 0)}, std::nullopt), "");
  EXPECT_EQ(followers({exited(1, 1), exited(0, 1)}, std::nullopt), "lockstep: 1 more rank ended after it\n");
  EXPECT_EQ(followers({exited(0, 0), exited(1, 1), killed(2, SIGTERM), killed(3, SIGKILL)}, std::nullopt),
            "lockstep: 2 more ranks ended after it\n");
  EXPECT_EQ(followers({exited(0, 2), exited(1, 2)}, Failure{.rank = 1, .cause = "bad", .exit_code = 2}), "");
}

TEST(WhereaboutsOf, OnlyRanksThatJoinedThisGeneration) {
  const base::Segment segment = base::Segment::create(2);
  base::ControlPage& page = segment.control();
  EXPECT_FALSE(whereabouts(page, 0).has_value());
  EXPECT_FALSE(whereabouts(page, -1).has_value());
  EXPECT_FALSE(whereabouts(page, 2).has_value());
  page.ranks[0].seat.store(make_mark(1, base::Seat::joined));
  page.ranks[0].step.store(17);
  page.ranks[0].phase.store(std::uint32_t(base::Phase::update));
  ASSERT_TRUE(whereabouts(page, 0).has_value());
  EXPECT_EQ(whereabouts(page, 0)->step, 17u);
  EXPECT_EQ(whereabouts(page, 0)->phase, "update");
  base::next_generation(page, 2);
  EXPECT_FALSE(whereabouts(page, 0).has_value());
}

TEST(DescribeTails, NamesTheFilesAndIndentsTheirLines) {
  EXPECT_EQ(describe_tails({}), "");
  EXPECT_EQ(describe_tails({{.file = "a.log", .lines = {"one", "t\two"}}, {.file = "b.log", .lines = {"three"}}}),
            "lockstep:   last lines of a.log:\n    one\n    t?wo\n"
            "lockstep:   last lines of b.log:\n    three\n");
}

}  // namespace
}  // namespace lockstep::launch
