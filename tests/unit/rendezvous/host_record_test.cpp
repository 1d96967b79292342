#include "lockstep/rendezvous/host_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using ::testing::HasSubstr;

TEST(HostRecord, TheThirdFailureLeavesOut) {
  HostRecord record;
  EXPECT_EQ(record.failed("h1", Time(1'000)), "");
  EXPECT_EQ(record.failed("h1", Time(2'000)), "");
  EXPECT_EQ(record.failed("h2", Time(2'500)), "");
  EXPECT_EQ(record.left_out_until("h1"), Time(0));
  EXPECT_THAT(record.failed("h1", Time(3'000)), HasSubstr("host h1 has failed 3 times: it is left out for 30 s"));
  EXPECT_EQ(record.left_out_until("h1"), Time(33'000));
  EXPECT_EQ(record.left_out_until("h2"), Time(0));
  EXPECT_EQ(record.left_out_until("never seen"), Time(0));
}

TEST(HostRecord, EachFurtherFailureDoublesItUpToAnEnd) {
  HostRecord record;
  for (int i = 0; i < 2; ++i) record.failed("h", Time(0));
  for (const int seconds : {30, 60, 120, 240, 480, 600, 600}) {
    record.failed("h", Time(1));
    EXPECT_EQ(record.left_out_until("h"), Time(1 + seconds * 1'000));
  }
  for (int i = 0; i < 100; ++i) record.failed("h", Time(1));
  EXPECT_EQ(record.left_out_until("h"), Time(1) + kLeftOutLongest);
}

// It comes again as soon as it may, and fails at once.
TEST(HostRecord, TheTimeLeftOutIsNoTimeWithoutFailures) {
  HostRecord record;
  Time now(0);
  for (int i = 0; i < 2; ++i) record.failed("h", now);
  for (const int seconds : {30, 60, 120, 240, 480, 600, 600, 600}) {
    record.failed("h", now);
    EXPECT_EQ(record.left_out_until("h"), now + Time(seconds * 1'000));
    now = record.left_out_until("h") + Time(1);
  }
  EXPECT_EQ(record.failed("h", now + kFailuresRemembered), "");
}

TEST(HostRecord, WhatIsLongAgoIsForgotten) {
  HostRecord record;
  record.failed("h", Time(0));
  record.failed("h", Time(1));
  EXPECT_EQ(record.failed("h", kFailuresRemembered + Time(1)), "");  // the first is forgotten
  EXPECT_NE(record.failed("h", kFailuresRemembered + Time(1)), "");
}

}  // namespace
}  // namespace lockstep::rendezvous
