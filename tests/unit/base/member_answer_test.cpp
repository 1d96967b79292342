// What a rank that waits at a page says to those of other nodes that wait for it, and ask; how it waits for one that
// waits for them; and what it hears of them.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/member.h"
#include "lockstep/base/segment.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

TEST(MemberAnswer, NamesThoseThatAWaitIsFor) {
  Segment segment = Segment::create(3);
  std::atomic<bool> asked{false};
  std::thread there([&] {
    Member member(segment.control(), 1, 20s);
    member.barrier();
  });
  std::thread late([&] {
    Member member(segment.control(), 2, 20s);
    while (!asked.load()) std::this_thread::sleep_for(1ms);
    member.barrier();
  });
  std::vector<int> names;
  int calls = 0;
  {
    Member member(segment.control(), 0, 20s);
    member.set_abroad({.first_rank = 5});
    member.set_answer([&](const std::function<std::vector<int>()>& awaited) {
      if (asked.load()) return;
      names = awaited();
      if (names == std::vector<int>{7} || ++calls == 200) asked.store(true);  // of rank 1 for a moment perhaps
    });
    member.barrier();
  }
  EXPECT_EQ(names, std::vector<int>{7});
  there.join();
  late.join();
}

// Says that it waits for other nodes, as the rank 1 of two, for so long.
void be_away(Segment& segment, const std::function<bool(std::chrono::milliseconds so_far)>& goes_on,
             const std::function<void(Member&)>& then) {
  Member member(segment.control(), 1, 20s);
  member.words().away.fetch_add(1);
  for (std::chrono::milliseconds so_far{0}; goes_on(so_far); so_far += 5ms) {
    member.show_life();
    std::this_thread::sleep_for(5ms);
  }
  member.words().away.fetch_sub(1);
  then(member);
}

// It tells when its own time is over, which may have begun later.
TEST(MemberAway, IsWaitedForBeyondTheTimeoutWhileItIsAlive) {
  Segment segment = Segment::create(2);
  std::thread other([&] {
    be_away(
        segment, [](std::chrono::milliseconds so_far) { return so_far < 1600ms; },
        [](Member& member) { member.barrier(); });
  });
  Member member(segment.control(), 0, 1000ms);
  member.set_abroad({.grace = 300ms});
  EXPECT_NO_THROW(member.barrier());
  other.join();
}

TEST(MemberAway, IsNamedAtTwiceTheTimeout) {
  Segment segment = Segment::create(2);
  std::atomic<bool> over{false};
  std::thread other([&] {
    be_away(
        segment, [&](std::chrono::milliseconds) { return !over.load(); }, [](Member&) {});
  });
  Member member(segment.control(), 0, 500ms);
  member.set_abroad({.grace = 100ms});
  try {
    member.barrier();
    ADD_FAILURE() << "the barrier ended without rank 1";
  } catch (const GroupAborted& aborted) {
    EXPECT_EQ(aborted.failure().rank, 1);
  }
  over.store(true);
  other.join();
}

TEST(MemberAway, AWaitOfTheOutermostGroupListensAbroadWhereItIsTo) {
  Segment segment = Segment::create(2);
  std::atomic<bool> done{false};
  std::thread late([&] {
    Member member(segment.control(), 1, 10s);
    while (!done.load()) std::this_thread::sleep_for(1ms);
  });
  Member member(segment.control(), 0, 10s);
  member.set_abroad({.listen = [&] { member.report({.rank = 5, .cause = "no more data"}); }});
  EXPECT_NO_THROW(member.check_abort_anywhere());
  member.set_listening(true);
  try {
    member.barrier();
    ADD_FAILURE() << "the barrier ended without rank 1";
  } catch (const GroupAborted& error) {
    EXPECT_EQ(error.failure().rank, 5);
    EXPECT_EQ(error.failure().cause, "no more data");
  }
  done.store(true);
  late.join();
}

}  // namespace
}  // namespace lockstep::base
