#include "lockstep/launch/nodes/report_collection.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::launch {
namespace {

using rendezvous::Report;

TEST(ReportCollection, PartsBecomeOneAgain) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += std::to_string(i) + "\n";
  ReportCollection reports;
  reports.expect(1, {.host = "h1", .rank = 1});
  EXPECT_FALSE(reports.complete());
  const auto parts = parts_of_report(text);
  EXPECT_GT(parts.size(), 2u);
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(reports.take(1, parts[i]), i + 1 == parts.size());
  EXPECT_TRUE(reports.complete());
  EXPECT_FALSE(reports.take(1, parts.front()));  // it has said all: nothing of this is kept
  const auto all = reports.take_all();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].text, text);
  EXPECT_FALSE(all[0].left);
}

TEST(ReportCollection, WhoIsGoneIsNotWaitedFor) {
  ReportCollection reports;
  reports.expect(1, {.rank = 1});
  reports.expect(2, {.rank = 2});
  reports.leave(1, /*early=*/true);
  EXPECT_FALSE(reports.complete());
  reports.take(2, {.part = {"half"}});
  reports.leave(2, /*early=*/false);
  reports.leave(9, /*early=*/true);  // a spare
  EXPECT_TRUE(reports.complete());
  const auto all = reports.take_all();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].left);
  EXPECT_FALSE(all[1].left);
  EXPECT_EQ(all[1].text, std::nullopt);
}

TEST(ReportCollection, WhatIsTooLongIsNotKept) {
  const auto parts = parts_of_report(std::string(kLongestReport + 1, 'x'));
  ASSERT_EQ(parts.size(), 1u);
  ReportCollection reports;
  reports.expect(0, {});
  EXPECT_TRUE(reports.take(0, parts[0]));
  EXPECT_TRUE(reports.complete());
  EXPECT_EQ(reports.take_all()[0].text, std::nullopt);
  reports.expect(1, {});
  const std::string part(4 << 20, 'x');
  for (std::size_t i = 0; i < kLongestReport / part.size(); ++i) EXPECT_FALSE(reports.take(1, {.part = {part}}));
  EXPECT_FALSE(reports.complete());
  EXPECT_TRUE(reports.take(1, {.part = {"x"}, .last = true}));
  EXPECT_TRUE(reports.complete());
  EXPECT_TRUE(reports.take(1, {.part = {"and on"}, .last = true}));  // it waits for an answer
  EXPECT_EQ(reports.take_all()[0].text, std::nullopt);
}

// What was dropped or replaced leaves its room to others.
TEST(ReportCollection, OnlyWhatIsKeptCounts) {
  ReportCollection reports;
  const std::string whole(kLongestReport, 'x');
  for (std::size_t i = 0; i < kLongestReports / kLongestReport; ++i) {
    reports.expect(1, {});
    EXPECT_TRUE(reports.take(1, {.part = {whole}, .last = true}));
    reports.expect(2 + i, {});
    reports.take(2 + i, {.part = {whole}});
    reports.leave(2 + i, /*early=*/true);
  }
  EXPECT_TRUE(reports.complete());
  EXPECT_EQ(reports.take_all()[0].text, whole);
}

TEST(ReportCollection, StrangersAndSparesAreNotKept) {
  ReportCollection reports;
  EXPECT_FALSE(reports.take(7, {.part = {"x"}, .last = true}));
  EXPECT_TRUE(reports.take_all().empty());
}

}  // namespace
}  // namespace lockstep::launch
