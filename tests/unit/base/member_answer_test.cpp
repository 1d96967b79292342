// What a rank that waits at a page says to those of other nodes that wait for it, and ask.

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

}  // namespace
}  // namespace lockstep::base
