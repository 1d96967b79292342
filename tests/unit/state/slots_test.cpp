// Gradient slots are no state: how many a region has changes when a node has other shards of the job than before.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include "lockstep/base/generation.h"
#include "lockstep/base/published_text.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/state/shared_state.h"
#include "tests/support/what_of.h"

namespace lockstep::state {
namespace {

constexpr int kManyShards = 600;
constexpr std::uint64_t kFilledIn = 7;  // the step

Layout with_slots(int slots, int shards = kManyShards) {
  return {{{"w", c10::ScalarType::Float, {40}, {1}}},
          {},
          {.shards = shards, .slots = slots},
          {{"table", c10::ScalarType::Float, {9}, {1}}}};
}

std::uint64_t fill_in_places(SharedState& fresh) {
  fresh.write_as<float>(fresh.layout().weights(0))[3] = 4;
  fresh.write_as<float>(fresh.layout().frozen_area(1))[3] = 5;
  return kFilledIn;
}
std::uint64_t filled_before(SharedState&) {
  ADD_FAILURE() << "filled again";
  return 0;
}

bool has_what_was_filled_in(const SharedState& state) {
  return state.committed() == base::Commit{kFilledIn, 0} &&
         state.read_as<float>(state.layout().weights(0))[3] == 4.0f &&
         state.read_as<float>(state.layout().frozen_area(1))[3] == 5.0f;
}

std::size_t bytes_taken(const base::Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return std::size_t(status.st_blocks) * 512;
}

// What it takes by its own account.
std::size_t bytes_said(const base::Segment& segment) {
  std::size_t bytes = bytes_taken(base::Segment::create(1));
  for (int area = 0; area < base::kAreas; ++area) bytes += segment.extent(base::Area(area)).bytes;
  return bytes;
}

// A node's first generation: one of the shards is its own.
base::Segment with_one_slot(int shards = kManyShards) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), with_slots(1, shards), fill_in_places);
    state.publish(1);
  }
  return base::next_generation(std::move(segment), 1);
}

TEST(Slots, MoreAndFewerFindTheState) {
  base::Segment segment = with_one_slot();
  base::publish(segment, "behind the region");
  std::size_t most = segment.extent(base::Area::state).bytes;
  const std::size_t first = most;
  for (const int slots : {kManyShards, 2, kManyShards - 1, kManyShards, 1}) {
    {
      comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
      SharedState state(group.node(), with_slots(slots), filled_before);
      EXPECT_TRUE(has_what_was_filled_in(state)) << slots;
      std::byte* const begin = state.write(state.layout().block_sums());
      std::byte* const end = state.write(state.layout().total_bytes());
      EXPECT_TRUE(std::all_of(begin, end, [](std::byte byte) { return byte == std::byte(0); })) << slots;
      // As sums of other nodes would.
      if (state.layout().is_spread()) std::memset(begin, 9, std::size_t(end - begin));
    }
    segment = base::next_generation(std::move(segment), 1);
    EXPECT_EQ(bytes_taken(segment), bytes_said(segment)) << slots;
    EXPECT_GE(segment.extent(base::Area::state).bytes, most) << slots;
    most = segment.extent(base::Area::state).bytes;
  }
  EXPECT_GT(most, first) << "all slots fit into the memory for one";
  EXPECT_EQ(base::published(segment), "behind the region");
}

TEST(Slots, WithoutMemoryForMoreTheStateStays) {
  base::Segment segment = with_one_slot();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    const base::Extent place = segment.extent(base::Area::state);
    const rlimit small{.rlim_cur = place.end(), .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string why =
        support::what_of([&] { const SharedState state(group.node(), with_slots(kManyShards), filled_before); });
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_NE(why.find("shared memory too small: the segment needs 2 MiB more"), std::string::npos) << why;
    EXPECT_EQ(segment.extent(base::Area::state), place);
  }
  segment = base::next_generation(std::move(segment), 1);
  EXPECT_EQ(bytes_taken(segment), bytes_said(segment));
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  const SharedState state(group.node(), with_slots(2), filled_before);
  EXPECT_TRUE(has_what_was_filled_in(state));
}

// At later and later instants, until one comes too late.
TEST(Slots, ADeathWhileTheyAreMadeCostsNeitherMemoryNorTheState) {
  using namespace std::chrono_literals;
  constexpr int shards = 2000;
  bool has_ended = false;
  for (std::chrono::microseconds delay = 0us; !has_ended; delay += 50us + delay / 8) {
    ASSERT_LT(delay, 10s);
    base::Segment segment = with_one_slot(shards);
    if (delay.count() % 2 != 0) base::publish(segment, "behind the region");
    const pid_t child = fork();
    if (child == 0) {
      comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
      const SharedState state(group.node(), with_slots(shards, shards), filled_before);
      _exit(has_what_was_filled_in(state) ? 0 : 1);
    }
    std::this_thread::sleep_for(delay);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    has_ended = WIFEXITED(status);
    EXPECT_TRUE(!has_ended || WEXITSTATUS(status) == 0);
    segment = base::next_generation(std::move(segment), 1);
    EXPECT_EQ(bytes_taken(segment), bytes_said(segment)) << delay.count();
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    const SharedState state(group.node(), with_slots(2, shards), filled_before);
    EXPECT_TRUE(has_what_was_filled_in(state)) << delay.count();
  }
}

}  // namespace
}  // namespace lockstep::state
