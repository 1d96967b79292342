#include "lockstep/metrics/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "sample_events.h"
#include "tests/support/terminal.h"
#include "tests/support/wait_until.h"

namespace lockstep::metrics {
namespace {

using lockstep::testing::Terminal;
using lockstep::testing::wait_until;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr RunLength kRun{.steps = 600, .samples_per_step = 200, .epochs = 2, .unit = "images"};

TEST(Duration, GrowsByUnits) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(41.2), "0:42");
  EXPECT_EQ(duration_text(59.5), "1:00");
  EXPECT_EQ(duration_text(725), "12:05");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(2 * 86400 + 3 * 3600 + 245), "2d 03:04:05");
  for (double odd : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e300})
    EXPECT_EQ(duration_text(odd), "?");
}

TEST(ProgressText, ShowsEachKind) {
  // 300 steps x 200 images at 12345.678 a second: 4.86 s
  EXPECT_EQ(progress_text(train_event(), kRun),
            "epoch 2/2  step 300/600  loss 0.1000  lr 0.0001  12346 images/s  ETA 0:05");
  EXPECT_EQ(progress_text(eval_event(), kRun), "epoch 2/2  evaluation: loss 0.3333, accuracy 98.75 % of 10000");
  EXPECT_EQ(progress_text(done_event(), kRun), "done: 600 steps in 12.3 s, 10000 images/s, weights 00ff");
  EXPECT_EQ(progress_text({.kind = Kind::fault, .fields = {{"cause", std::string("rank 1 is gone")}}}, kRun),
            "fault: rank 1 is gone");
  EXPECT_EQ(progress_text({.kind = Kind::fault, .fields = {{"step", std::int64_t(7)}, {"lost_seconds", 1.25}}}, kRun),
            "fault: not known of what; 1.2 s lost; going on behind step 7");
  EXPECT_EQ(progress_text({.kind = Kind::checkpoint,
                           .fields = {{"step", std::int64_t(7)}, {"path", std::string("checkpoints/7")}}},
                          kRun),
            "checkpoint at step 7: checkpoints/7");
  EXPECT_EQ(
      progress_text({.kind = Kind::checkpoint,
                     .fields = {{"step", std::int64_t(7)}, {"path", std::string("c")}, {"skipped", std::int64_t(2)}}},
                    kRun),
      "checkpoint at step 7: c; left out so far, while another was written: 2");
  EXPECT_EQ(progress_text({.kind = Kind::start}, kRun), "");
}

TEST(ProgressText, ShowsAccuracyWaitAndMemoryWhereTheyAreKnown) {
  Event event = train_event();
  event.fields.insert(event.fields.end(), {{"data_seconds", 1.0},
                                           {"compute_seconds", 2.0},
                                           {"step_seconds", 1.0},
                                           {"memory_bytes", std::int64_t(300) << 20}});
  EXPECT_EQ(progress_text(event, kRun, 0.9875),
            "epoch 2/2  step 300/600  loss 0.1000  lr 0.0001  accuracy 98.75 %  12346 images/s  ETA 0:05  data wait 25 "
            "%  300 MiB");
}

TEST(ProgressText, ShowsTheNumbersOfAnyTask) {
  EXPECT_EQ(progress_text(without(eval_event(), "loss"), kRun),
            "epoch 2/2  evaluation: top1 0.9875 over 10000 samples");
}

// Told again after a restart, an event has no rate, and what was measured is of the last start's steps alone.
TEST(ProgressText, WhatWasNotMeasuredIsNotSaid) {
  EXPECT_EQ(progress_text(without(train_event(), "samples_per_second"), kRun),
            "epoch 2/2  step 300/600  loss 0.1000  lr 0.0001");
  Event done = done_event();
  done.fields.at(2).second = std::int64_t(90);
  EXPECT_EQ(progress_text(done, kRun),
            "done: 600 steps, 90 of them since the restart, in 12.3 s, 10000 images/s, weights 00ff");
  EXPECT_EQ(progress_text(without(done_event(), "samples_per_second"), kRun),
            "done: 600 steps in 12.3 s, weights 00ff");
}

TEST(ProgressText, UnknownTotalsAndSpeedsAreNotInvented) {
  Event event = train_event();
  event.fields.back().second = 0.0;
  EXPECT_EQ(progress_text(event, {.steps = 600, .samples_per_step = 200}),
            "epoch 2  step 300/600  loss 0.1000  lr 0.0001  0 samples/s  ETA ?");
  EXPECT_EQ(progress_text(train_event(), {.steps = 600}),
            "epoch 2  step 300/600  loss 0.1000  lr 0.0001  12346 samples/s");
  EXPECT_EQ(progress_text(train_event(), {.samples_per_step = 200}),
            "epoch 2  step 300  loss 0.1000  lr 0.0001  12346 samples/s");
  EXPECT_THROW(progress_text({.kind = Kind::train}, kRun), Error);
}

TEST(TerminalText, OnlyTrainLinesAreRewrittenAndCut) {
  EXPECT_EQ(terminal_text(Kind::train, "0123456789", 0), "\r0123456789\x1b[K");
  EXPECT_EQ(terminal_text(Kind::train, "0123456789", 6), "\r01234\x1b[K");
  EXPECT_EQ(terminal_text(Kind::eval, "0123456789", 6), "\r0123456789\x1b[K\n");
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  TemporaryFolder folder;
  const base::UniqueFd file(::open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  {
    Progress progress(file.get(), kRun);
    for (const Event& event : {train_event(), eval_event(), train_event()}) progress.write(event);
  }
  EXPECT_EQ(read_all(folder.file("out")), progress_text(train_event(), kRun) + "\n" +
                                              progress_text(eval_event(), kRun) + "\n" +
                                              progress_text(train_event(), kRun, 0.9875) + "\n");
}

TEST(Progress, OneRewrittenLineOnATerminal) {
  const base::UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master);
  ASSERT_EQ(::grantpt(master.get()) | ::unlockpt(master.get()), 0);
  base::UniqueFd terminal(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  {
    Progress progress(terminal.get(), kRun);
    progress.write(train_event());
    progress.write(train_event());
  }
  const std::string line = "\r" + progress_text(train_event(), kRun) + "\x1b[K";
  terminal = base::UniqueFd();
  // The kernel hands over what was written piece by piece; the end, an error here, comes after the last.
  std::string shown;
  std::array<char, 4096> piece;
  for (ssize_t count = 0; (count = ::read(master.get(), piece.data(), piece.size())) > 0;)
    shown.append(piece.data(), std::size_t(count));
  EXPECT_EQ(shown, line + line + "\r\n");  // the terminal makes \r\n of \n
}

// Ctrl-S, a stalled ssh session: rank 0 would stand in write(), and the job with it.
TEST(Progress, ATerminalThatStandsStillDropsProgressAndKeepsResults) {
  for (const bool full : {true, false}) {
    const Terminal terminal;
    if (full)
      terminal.fill_but_for_little();
    else
      terminal.stop();
    const pid_t run = fork();
    if (run == 0) {
      {
        Progress progress(terminal.screen(), kRun);
        for (int i = 0; i < 10'000; ++i) progress.write(train_event());
        progress.write(eval_event());
        for (int i = 0; i < 10'000; ++i) progress.write(train_event());
        raise(SIGSTOP);  // so far without having waited
        progress.write(done_event());
      }  // waits for the terminal
      _exit(0);
    }
    int status = 0;
    wait_until([&] { return waitpid(run, &status, WNOHANG | WUNTRACED) == run; });
    EXPECT_TRUE(WIFSTOPPED(status));
    if (!full) terminal.go_on();
    kill(run, SIGCONT);
    const std::string seen = terminal.read_until([&] { return waitpid(run, &status, WNOHANG) == run; });
    EXPECT_EQ(status, 0);
    EXPECT_THAT(seen, HasSubstr(progress_text(eval_event(), kRun)));
    EXPECT_THAT(seen, EndsWith(progress_text(done_event(), kRun) + "\x1b[K\r\n"));
    EXPECT_LT(seen.size(), 100'000u) << "train lines were kept";
  }
}

TEST(Progress, NobodyWatchingIsNoFailure) {
  Progress progress(-1, kRun);
  EXPECT_NO_THROW(progress.write(train_event()));
}

}  // namespace
}  // namespace lockstep::metrics
