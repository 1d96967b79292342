#include "lockstep/metrics/report.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "sample_events.h"

namespace lockstep::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A report of rank `rank` into `folder`/run, whose progress line is the file `folder`/out.
class ReportOf {
 public:
  ReportOf(const TemporaryFolder& folder, int rank, int attempt = 0)
      : out_(::open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)),
        report_({.folder = folder.file("run"),
                 .rank = rank,
                 .run_id = "job 7",
                 .attempt = attempt,
                 .first_step = 5,
                 .length = {.steps = 20, .samples_per_step = 4},
                 .progress = out_.get()}) {}
  Report* operator->() { return &report_; }

 private:
  base::UniqueFd out_;
  Report report_;
};

std::vector<nlohmann::json> events_in(const std::string& file) {
  std::vector<nlohmann::json> events;
  std::istringstream lines(read_all(file));
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  return events;
}

TEST(Report, WritesAndShowsALoopOfOnesOwn) {
  TemporaryFolder folder;
  {
    ReportOf report(folder, 0);
    report->train({.step = 10, .epoch = 2, .loss = 0.5, .lr = 0.1, .samples = 24});
    report->eval({.step = 10, .epoch = 2, .numbers = {{"rmse", 0.25}, {"mae", 0.125}}, .samples = 9});
    ASSERT_NE(report->tensorboard(), nullptr);
    report->tensorboard()->add_text("notes", "a text", 10);
    report->done(20, "00ff");
  }
  const auto events = events_in(folder.file("run/metrics.jsonl"));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["event"], "start");
  EXPECT_EQ(events[0]["first_step"], 5);
  EXPECT_EQ(events[1]["loss"], 0.5);
  EXPECT_TRUE(events[1].contains("samples_per_second"));
  EXPECT_EQ(events[2]["rmse"], 0.25);
  EXPECT_EQ(events[2]["samples"], 9);
  EXPECT_EQ(events[3]["attempt_steps"], 16);
  EXPECT_EQ(events[3]["weights_hash"], "00ff");
  EXPECT_THAT(read_all(folder.file("run/metrics.csv")), HasSubstr(",10,2,,,,,9,0.125,,,,,,,,\n"));
  const std::string shown = read_all(folder.file("out"));
  EXPECT_THAT(shown, HasSubstr("epoch 2  step 10/20  loss 0.5000  lr 0.1  "));
  EXPECT_THAT(shown, HasSubstr(" samples/s  ETA 0:0"));
  EXPECT_THAT(shown, HasSubstr("epoch 2  evaluation: mae 0.125, rmse 0.25 over 9 samples\n"));
  EXPECT_THAT(shown, HasSubstr("done: 20 steps, 16 of them since the restart, in "));
}

// Both bounds are of what this test has measured around the calls.
TEST(Report, TheRateIsOfTheTimeSinceThePointBefore) {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  TemporaryFolder folder;
  ReportOf report(folder, 0);
  Clock::time_point before = Clock::now();
  report->train({.step = 5, .loss = 0.5, .lr = 0.1, .samples = 4});
  Clock::time_point after = Clock::now();
  for (const bool evaluated : {false, true}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (evaluated) report->eval({.step = 5, .numbers = {{"rmse", 0.25}}, .samples = 9});
    const Clock::time_point next_before = Clock::now();
    report->train({.step = 6, .loss = 0.5, .lr = 0.1, .samples = 24});
    const Clock::time_point next_after = Clock::now();
    const double rate = events_in(folder.file("run/metrics.jsonl")).back()["samples_per_second"];
    EXPECT_LE(rate, 24 / Seconds(next_before - after).count()) << evaluated;
    EXPECT_GE(rate, 24 / Seconds(next_after - before).count()) << evaluated;
    before = next_before;
    after = next_after;
  }
}

TEST(Report, OfOtherRanksIsSilent) {
  TemporaryFolder folder;
  {
    ReportOf report(folder, 1);
    report->train({.step = 10, .loss = 0.5, .lr = 0.1});
    report->eval({.step = 10, .numbers = {{"rmse", 0.25}}, .samples = 9});
    report->done(20, "00ff");
    EXPECT_EQ(report->tensorboard(), nullptr);
  }
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
  EXPECT_EQ(read_all(folder.file("out")), "");
}

TEST(Report, OfALaterAttemptGoesOnInTheFolder) {
  TemporaryFolder folder;
  ReportOf(folder, 0)->train({.step = 10, .loss = 0.5, .lr = 0.1});
  ReportOf(folder, 0, 1)->train({.step = 11, .loss = 0.5, .lr = 0.1});
  EXPECT_EQ(events_in(folder.file("run/metrics.jsonl")).size(), 4u);
  EXPECT_THAT([&] { ReportOf(folder, 0, 1); }, ThrowsMessage<UsageError>(HasSubstr("already holds a run")));
}

TEST(Report, WithoutWhatItNeedsSaysSo) {
  TemporaryFolder folder;
  EXPECT_THAT([&] { Report({.folder = folder.file("run")}); }, ThrowsMessage<UsageError>(HasSubstr("world.run_id()")));
  EXPECT_THAT([&] { ReportOf(folder, 0)->eval({.step = 1}); }, ThrowsMessage<UsageError>(HasSubstr("without numbers")));
}

TEST(Report, NamesThatAnEventHasAnywayAreRefusedOnAllRanks) {
  TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    ReportOf report(folder, rank);
    for (const std::string name : {"event", "time", "step", "epoch", "samples", "best_on"})
      EXPECT_THAT(
          [&] {
            report->eval({.step = 1, .numbers = {{"rmse", 1}, {name, 1}}});
          },
          ThrowsMessage<UsageError>(HasSubstr("'" + name + "'")));
  }
}

}  // namespace
}  // namespace lockstep::metrics
