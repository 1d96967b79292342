#include "lockstep/launch/beside.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

class BesideTest : public ::testing::Test {
 protected:
  base::Outlet nothing_to_say_;
  EventLoop loop_{nothing_to_say_};
};

// A node whose agent copies a large state would else be lost to the others.
TEST_F(BesideTest, TheLoopGoesOnMeanwhile) {
  std::atomic<int> turns = 0;
  EventLoop::Handle timer;
  std::function<void()> count = [&] {
    ++turns;
    timer = loop_.at(EventLoop::Clock::now() + milliseconds(1), count);
  };
  count();
  const auto before = std::this_thread::get_id();
  const auto text = beside(loop_, [&] {
    EXPECT_NE(std::this_thread::get_id(), before);
    const auto deadline = EventLoop::Clock::now() + std::chrono::seconds(10);
    while (turns < 5 && EventLoop::Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    return std::make_unique<std::string>("done");
  });
  EXPECT_EQ(*text, "done");
  EXPECT_GE(turns, 5);
}

TEST_F(BesideTest, WhatTheWorkThrowsIsThrown) {
  EXPECT_THROW(beside(loop_, []() -> int { throw UsageError("memory is short"); }), UsageError);
}

TEST_F(BesideTest, AHandlerThatThrowsLeavesNoThread) {
  std::atomic<bool> ended = false;
  const EventLoop::Handle timer = loop_.at(EventLoop::Clock::now(), [] { throw Error("the handler's"); });
  EXPECT_THROW(beside(loop_,
                      [&] {
                        std::this_thread::sleep_for(milliseconds(50));
                        return ended = true;
                      }),
               Error);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace lockstep::launch
