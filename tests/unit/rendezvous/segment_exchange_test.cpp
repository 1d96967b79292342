#include "lockstep/rendezvous/segment_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A job key that no other run of this test uses.
Place place(int local_rank, int local_world, const std::string& key) {
  Place result;
  result.rank = result.local_rank = local_rank;
  result.world_size = result.local_world_size = local_world;
  result.launcher = "torchrun";
  result.job_key = "test " + std::to_string(getpid()) + " " + key;
  return result;
}

std::string failure_of(const Place& place, std::chrono::milliseconds timeout) {
  try {
    share_segment(place, timeout);
    return "shared";
  } catch (const Error& error) {
    return error.what();
  }
}

// Writes this rank's number where the others can see it.
void sign(const base::Segment& segment, int rank) {
  segment.control().ranks[rank].step.store(100 + std::uint64_t(rank));
}

TEST(ShareSegment, AloneMakesItsOwn) {
  const base::Segment segment = share_segment(Place{}, 1s);
  EXPECT_EQ(segment.control().local_world, 1);
}

TEST(ShareSegment, ThePathOfAnAgentIsOpened) {
  const base::Segment made = base::Segment::create(2);
  Place here = place(1, 2, "path");
  here.segment_path = made.path();
  sign(share_segment(here, 1s), 1);
  EXPECT_EQ(made.control().ranks[1].step.load(), 101u);
}

TEST(ShareSegment, AnAgentThatIsGoneIsNamed) {
  Place here = place(1, 2, "gone");
  here.segment_path = "/proc/2147483647/fd/3";
  EXPECT_THAT(failure_of(here, 1s), HasSubstr("/proc/2147483647/fd/3"));
}

TEST(ShareSegment, ForkedRanksShareOneMemory) {
  constexpr int kRanks = 8;
  std::vector<pid_t> children;
  const std::vector<Place> places = [] {
    std::vector<Place> result;
    for (int rank = 0; rank < kRanks; ++rank) result.push_back(place(rank, kRanks, "forked"));
    return result;
  }();
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      sign(share_segment(places[std::size_t(rank)], 20s), rank);
      _exit(0);
    }
    children.push_back(child);
  }
  const base::Segment segment = share_segment(places[0], 20s);
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (int rank = 1; rank < kRanks; ++rank)
    EXPECT_EQ(segment.control().ranks[rank].step.load(), 100 + std::uint64_t(rank));
}

TEST(ShareSegment, MissingRanksAreNamed) {
  std::thread present([] { failure_of(place(2, 4, "missing"), 20s); });
  EXPECT_THAT(failure_of(place(0, 4, "missing"), 1s), HasSubstr("did not come within 1 s: 1, 3"));
  present.join();
}

TEST(ShareSegment, AMissingRankZeroIsNamed) {
  EXPECT_THAT(failure_of(place(1, 2, "no zero"), 50ms), HasSubstr("local rank 0 did not offer the segment"));
}

TEST(ShareSegment, AnOlderAttemptIsNotJoined) {
  std::thread stale([] { failure_of(place(0, 2, "attempt 0"), 300ms); });
  EXPECT_THAT(failure_of(place(1, 2, "attempt 1"), 100ms), HasSubstr("did not offer"));
  stale.join();
}

TEST(ShareSegment, AnotherWorldSizeIsAnError) {
  std::thread other([] { failure_of(place(1, 3, "sizes"), 2s); });
  EXPECT_THAT(failure_of(place(0, 2, "sizes"), 20s), HasSubstr("started for 3 local ranks, local rank 0 for 2"));
  other.join();
}

TEST(ShareSegment, TwoOfTheSameRankAreAnError) {
  std::thread one([] { failure_of(place(1, 3, "twins"), 20s); });
  std::thread two([] { failure_of(place(1, 3, "twins"), 20s); });
  EXPECT_THAT(failure_of(place(0, 3, "twins"), 20s), HasSubstr("two processes are local rank 1"));
  one.join();
  two.join();
}

TEST(ShareSegment, ASecondLocalRankZeroIsAnError) {
  std::thread first([] { failure_of(place(0, 2, "zeros"), 500ms); });
  std::string second = failure_of(place(0, 2, "zeros"), 100ms);
  first.join();
  // Whichever came second found the name taken; the other waited for rank 1 in vain.
  EXPECT_THAT(second, testing::AnyOf(HasSubstr("local rank 0 of this job already"), HasSubstr("did not come")));
}

}  // namespace
}  // namespace lockstep::rendezvous
