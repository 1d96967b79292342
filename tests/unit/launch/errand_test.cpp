#include "lockstep/launch/errand.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

TEST(Errand, RingsWhenTheWorkHasEndedAndHasWhatItReturns) {
  Errand<std::unique_ptr<std::string>> errand([] { return std::make_unique<std::string>("done"); });
  pollfd ended{errand.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 30'000), 1);
  EXPECT_TRUE(errand.ends_within(milliseconds(0)));
  EXPECT_EQ(*errand.take(), "done");
}

TEST(Errand, WhatTheWorkThrowsIsThrown) {
  Errand<int> errand([]() -> int { throw UsageError("no such host"); });
  EXPECT_THROW(errand.take(), UsageError);
}

TEST(Errand, IsNotWaitedForWhereItTakesLong) {
  std::promise<void> goes_on;
  const auto was_let_go = std::make_shared<std::promise<bool>>();
  std::future<bool> let_go = was_let_go->get_future();
  {
    Errand<bool> errand([was_let_go, wait = goes_on.get_future().share()] {
      const bool in_time = wait.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      was_let_go->set_value(in_time);
      return in_time;
    });
    EXPECT_FALSE(errand.ends_within(milliseconds(10)));
  }
  goes_on.set_value();
  EXPECT_TRUE(let_go.get());
}

}  // namespace
}  // namespace lockstep::launch
