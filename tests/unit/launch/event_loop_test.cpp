#include "lockstep/launch/event_loop.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using base::UniqueFd;
using std::chrono::milliseconds;
using Clock = EventLoop::Clock;
using Handle = EventLoop::Handle;

constexpr milliseconds kFarOff{30'000};

// A pipe with one byte in it or none.
class Bell {
 public:
  Bell() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
  }
  int fd() const { return reader_.get(); }
  void ring() const { ASSERT_EQ(write(writer_.get(), "!", 1), 1); }
  void hear() const {
    char byte = 0;
    ASSERT_EQ(read(reader_.get(), &byte, 1), 1);
  }

 private:
  UniqueFd reader_, writer_;
};

class EventLoopTest : public ::testing::Test {
 protected:
  // Notes its name and takes the byte.
  Handle watch(const Bell& bell, char name) {
    return loop_.watch(bell.fd(), [this, &bell, name] {
      bell.hear();
      happened_ += name;
    });
  }
  Handle at(milliseconds from_now, char name) {
    return loop_.at(start_ + from_now, [this, name] { happened_ += name; });
  }
  bool run_until_happened(std::size_t count) {
    return loop_.run_until([&] { return happened_.size() >= count; }, start_ + kFarOff);
  }
  // What has come by now, and no more.
  void turn_now() { loop_.turn(Clock::now()); }

  const Clock::time_point start_ = Clock::now();
  std::string happened_;
  base::Outlet console_;
  EventLoop loop_{console_};
};

TEST_F(EventLoopTest, EventsComeInTheOrderInWhichTheyHappened) {
  const std::array<Bell, 4> bells{};
  std::vector<Handle> handles;
  for (std::size_t i = 0; i < bells.size(); ++i) handles.push_back(watch(bells[i], char('a' + i)));
  for (const std::size_t i : {2, 0, 3, 1}) bells[i].ring();
  turn_now();
  EXPECT_EQ(happened_, "cadb");
  turn_now();  // the kernel finds that they are read empty
  for (const std::size_t i : {1, 2}) bells[i].ring();
  turn_now();
  EXPECT_EQ(happened_, "cadbbc");
}

TEST_F(EventLoopTest, AnEventComesAgainUntilItIsTaken) {
  const Bell bell;
  const Handle handle = loop_.watch(bell.fd(), [&] {
    happened_ += 'a';
    if (happened_.size() == 2) bell.hear();
  });
  bell.ring();
  for (int i = 0; i < 4; ++i) turn_now();
  EXPECT_EQ(happened_, "aa");
}

TEST_F(EventLoopTest, TimersComeInOrderOfTheirTimesAndOnce) {
  const Handle c = at(milliseconds(20), 'c');
  const Handle a = at(milliseconds(5), 'a');
  const Handle d = at(milliseconds(20), 'd');
  const Handle b = at(milliseconds(10), 'b');
  EXPECT_TRUE(run_until_happened(4));
  EXPECT_GE(Clock::now(), start_ + milliseconds(20));
  turn_now();
  EXPECT_EQ(happened_, "abcd");
}

TEST_F(EventLoopTest, EventsComeBeforeTheTimersOfTheirTurn) {
  const Bell bell;
  const Handle timer = at(milliseconds(0), 't');
  const Handle event = watch(bell, 'e');
  bell.ring();
  turn_now();
  EXPECT_EQ(happened_, "et");
}

TEST_F(EventLoopTest, AllThatHasComeIsHandedOutBeforeTheTimers) {
  const std::array<Bell, 200> bells{};
  std::vector<Handle> handles;
  for (const Bell& bell : bells) handles.push_back(watch(bell, 'e'));
  const Handle timer = at(milliseconds(0), 't');
  for (const Bell& bell : bells) bell.ring();
  turn_now();
  EXPECT_EQ(happened_, std::string(bells.size(), 'e') + "t");
}

TEST_F(EventLoopTest, WhatIsEndedDoesNotCome) {
  const Bell bell;
  Handle timer = at(milliseconds(0), 't');
  {
    const Handle event = watch(bell, 'e');
    bell.ring();
  }
  timer = {};
  turn_now();
  EXPECT_EQ(happened_, "");
  timer = at(milliseconds(0), 'u');
  timer = at(milliseconds(0), 'v');
  turn_now();
  EXPECT_EQ(happened_, "v") << "one takes the other's place";
}

TEST_F(EventLoopTest, AHandleMayMove) {
  const Bell bell;
  Handle first = watch(bell, 'e');
  const Handle second = std::move(first);
  first = {};
  bell.ring();
  turn_now();
  EXPECT_EQ(happened_, "e");
}

TEST_F(EventLoopTest, AHandleThatTakesAnothersPlaceEndsItsOwn) {
  const Bell bell;
  Handle event = watch(bell, 'e');
  Handle timer = at(milliseconds(0), 't');
  event = std::move(timer);
  bell.ring();
  turn_now();
  EXPECT_EQ(happened_, "t") << "although the other handle lives";
}

TEST_F(EventLoopTest, AHandlerMayEndItself) {
  const Bell bell;
  const auto state = std::make_shared<std::string>("alive");
  Handle self;
  self = loop_.watch(bell.fd(), [this, &self, state] {
    self = {};
    happened_ += *state;  // still there, though the loop has let go of it
  });
  EXPECT_EQ(state.use_count(), 2);
  bell.ring();
  turn_now();
  turn_now();
  EXPECT_EQ(happened_, "alive");
  EXPECT_EQ(state.use_count(), 1) << "gone with the call";
}

TEST_F(EventLoopTest, AHandlerMayEndOthersWhoseEventIsBeingHandedOut) {
  const std::array<Bell, 3> bells{};
  std::vector<Handle> handles;
  for (std::size_t i = 0; i < bells.size(); ++i) {
    handles.push_back(loop_.watch(bells[i].fd(), [&, i] {
      happened_ += char('a' + i);
      handles.clear();
    }));
  }
  for (const Bell& bell : bells) bell.ring();
  turn_now();
  turn_now();
  EXPECT_EQ(happened_, "a");
}

TEST_F(EventLoopTest, AnEventOfAnEndedWatchIsNotTheNextOnesOfTheSameNumber) {
  const Bell first;
  auto second = std::make_unique<Bell>();
  std::unique_ptr<Bell> third;
  const int number = second->fd();
  Handle later = watch(*second, 'b');
  const Handle watch_first = loop_.watch(first.fd(), [&] {
    first.hear();
    later = {};
    second.reset();
    third = std::make_unique<Bell>();
    later = loop_.watch(third->fd(), [this] { happened_ += 'c'; });
  });
  first.ring();
  second->ring();
  turn_now();
  EXPECT_EQ(third->fd(), number) << "else this test shows nothing";
  EXPECT_EQ(happened_, "");
}

TEST_F(EventLoopTest, TimersMaySetAndEndTimers) {
  Handle ended = at(milliseconds(2), 'x');
  Handle next;
  const Handle first = loop_.at(start_ + milliseconds(1), [&] {
    happened_ += 'a';
    ended = {};
    next = loop_.at(Clock::now() + milliseconds(1), [&] {
      happened_ += 'b';
      next = at(milliseconds(0), 'c');  // in its own place
    });
  });
  EXPECT_TRUE(run_until_happened(3));
  turn_now();
  EXPECT_EQ(happened_, "abc");
}

TEST_F(EventLoopTest, RunsNoLongerThanNeeded) {
  const Bell bell;
  const Handle handle = watch(bell, 'a');
  bell.ring();
  EXPECT_TRUE(loop_.run_until([] { return true; }));
  EXPECT_EQ(happened_, "") << "no turn at all";
  EXPECT_TRUE(loop_.run_until([&] { return happened_ == "a"; }, start_)) << "a turn at the deadline, even a late one";
  EXPECT_FALSE(loop_.run_until([] { return false; }, Clock::now() + milliseconds(5)));
  EXPECT_GE(Clock::now(), start_ + milliseconds(5));
}

TEST_F(EventLoopTest, WhatHappensWhileAHandlerOverrunsTheDeadlineIsSeen) {
  const Bell slow;
  const Bell late;
  const Handle late_handle = watch(late, 'b');
  const Clock::time_point deadline = Clock::now() + milliseconds(20);
  const Handle slow_handle = loop_.watch(slow.fd(), [&] {
    slow.hear();
    late.ring();
    std::this_thread::sleep_until(deadline);
  });
  slow.ring();
  EXPECT_TRUE(loop_.run_until([&] { return happened_ == "b"; }, deadline));
}

TEST_F(EventLoopTest, WhatAHandlerThrowsComesOutAndTheRestComesLater) {
  const Bell first;
  const Bell second;
  const Handle throwing = loop_.watch(first.fd(), [&] {
    first.hear();
    throw Error("bad");
  });
  const Handle other = watch(second, 'b');
  first.ring();
  second.ring();
  EXPECT_THROW(turn_now(), Error);
  EXPECT_EQ(happened_, "");
  turn_now();
  EXPECT_EQ(happened_, "b");
}

TEST_F(EventLoopTest, AFileCannotBeWatched) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  EXPECT_THROW(static_cast<void>(loop_.watch(fileno(file.get()), [] {})), Error);
}

// A pipe that nobody reads, with something said to it that it does not take.
class StuckConsoleTest : public ::testing::Test {
 protected:
  StuckConsoleTest() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    reader_ = UniqueFd(ends[0]);
    writer_ = UniqueFd(ends[1]);
    console_ = base::Outlet::console(writer_.get());
    console_.say(text_);
  }
  // At most what is there.
  std::string read_some() const {
    std::string some(64 << 10, '\0');
    const ssize_t got = read(reader_.get(), some.data(), some.size());
    return some.substr(0, std::size_t(std::max<ssize_t>(got, 0)));
  }

  const std::string text_ = std::string(1 << 20, 'x') + "\n";
  UniqueFd reader_, writer_;
  base::Outlet console_;
  EventLoop loop_{console_};
};

TEST_F(StuckConsoleTest, HoldsUpNeitherEventsNorTimers) {
  ASSERT_TRUE(console_.pending());
  const Bell bell;
  bool rang = false;
  bool timed = false;
  Handle event;
  event = loop_.watch(bell.fd(), [&] {
    rang = true;
    event = {};
  });
  const Handle timer = loop_.at(Clock::now() + milliseconds(5), [&] { timed = true; });
  bell.ring();
  EXPECT_TRUE(loop_.run_until([&] { return rang && timed; }, Clock::now() + kFarOff));
  EXPECT_TRUE(console_.pending());
}

TEST_F(StuckConsoleTest, IsWrittenToWhileTheLoopWaits) {
  std::string seen;
  Handle timer;
  const std::function<void()> read_on = [&] {
    seen += read_some();
    timer = loop_.at(Clock::now() + milliseconds(1), read_on);
  };
  timer = loop_.at(Clock::now(), read_on);
  EXPECT_TRUE(loop_.run_until([&] { return seen.size() == text_.size(); }, Clock::now() + kFarOff));
  EXPECT_EQ(seen == text_, true);
  EXPECT_FALSE(console_.pending());
}

}  // namespace
}  // namespace lockstep::launch
