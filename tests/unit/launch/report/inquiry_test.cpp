#include "lockstep/launch/report/inquiry.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "lockstep/base/segment.h"

namespace lockstep::launch {
namespace {

class InquiryTest : public ::testing::Test {
 protected:
  void write_error(int rank) const {
    std::ofstream(inquiry_.error_file(rank)) << R"({"message": {"message": "ValueError: bad", "extraInfo": {}}})";
  }

  base::Segment segment_ = base::Segment::create(2);
  base::ControlPage& page_ = segment_.control();
  Inquiry inquiry_{page_, std::vector<ErrorFile>(2)};
};

TEST_F(InquiryTest, AFailureWakesThePeers) {
  const End end{.rank = 1, .pid = 7, .exit_code = 3, .when = 1};
  inquiry_.open(end);
  const std::uint32_t generation = page_.generation.load();
  EXPECT_TRUE(is_aborted(page_, generation));
  EXPECT_EQ(read_failure(page_, generation).rank, 1);
  EXPECT_EQ(read_failure(page_, generation).exit_code, 3);
  EXPECT_FALSE(inquiry_.first({end}).told) << "what the agent wrote itself is no witness";
}

TEST_F(InquiryTest, WhatAWorkerHasToldBeforeIsBelieved) {
  raise_abort(page_, page_.generation.load(), {.rank = 0, .cause = "disk full", .exit_code = 5});
  const End end{.rank = 1, .pid = 7, .exit_code = 3, .when = 1};
  inquiry_.open(end);
  const Verdict first = inquiry_.first({end});
  EXPECT_EQ(first.end.rank, 0);
  EXPECT_EQ(first.code, 5);
  EXPECT_TRUE(first.still_running);
}

TEST_F(InquiryTest, ErrorFilesTellWhoWasFirstAndWhy) {
  write_error(0);
  const std::vector<End> ends{{.rank = 1, .pid = 7, .exit_code = 3, .when = 1e12},
                              {.rank = 0, .pid = 6, .exit_code = 4, .when = 2e12}};
  Verdict first = inquiry_.first(ends);
  EXPECT_EQ(first.end.rank, 0) << "its exception came before the other's end";
  OutOfMemoryWatch kernel;
  inquiry_.explain(first, kernel);
  ASSERT_TRUE(first.error);
  EXPECT_EQ(first.error->message, "ValueError: bad");
  EXPECT_FALSE(first.out_of_memory);
}

}  // namespace
}  // namespace lockstep::launch
