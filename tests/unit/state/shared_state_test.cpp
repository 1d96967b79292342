#include "lockstep/state/shared_state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/ranks.h"

namespace lockstep::state {
namespace {

using support::RankKind;
using support::run_ranks;

Layout tiny(int shards = 2, int buffers = 2) {
  return {{{"w", c10::ScalarType::Float, {40}, {1}}},
          {},
          {.shards = shards, .optimizer_arrays = 1, .state_buffers = buffers}};
}

TEST(SharedState, IsFilledOnceAndSeenByAll) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    int fills = 0;
    SharedState state(group->node(), tiny(), [&](SharedState& fresh) {
      ++fills;
      for (int i = 0; i < 40; ++i) fresh.write_as<float>(fresh.layout().weights(0))[i] = float(i);
    });
    EXPECT_EQ(fills, group->rank() == 0 ? 1 : 0);
    EXPECT_EQ(state.read_as<float>(state.layout().weights(0))[39], 39.0f);
    EXPECT_EQ(state.committed(), base::Commit{});
    EXPECT_EQ(state.target(), 1);
    group->barrier();
  });
}

TEST(SharedState, AStepIsCommittedOnlyWhenAllHaveVoted) {
  run_ranks(RankKind::threads, 4, [](auto group) {
    SharedState state(group->node(), tiny(4), [](SharedState&) {});
    for (std::uint64_t step = 1; step <= 200; ++step) {
      const int target = state.target();
      state.write_as<float>(state.layout().weights(target))[group->rank() * 10] = float(step);
      state.vote(step);
      ASSERT_EQ(state.committed().step, step);
      ASSERT_EQ(int(state.committed().buffer), target);
      const float* weights = state.read_as<float>(state.layout().weights(target));
      for (int rank = 0; rank < 4; ++rank) ASSERT_EQ(weights[rank * 10], float(step));
    }
  });
}

TEST(SharedState, ALaterGenerationGoesOnFromTheCommittedStep) {
  base::Segment segment = base::Segment::create(1);
  const auto open = [&] { return base::Segment::open(segment.path(), 1); };
  std::string hash;
  {
    comm::ShmGroup group(open(), 0);
    SharedState state(group.node(), tiny(),
                      [](SharedState& fresh) { fresh.write_as<float>(fresh.layout().weights(0))[3] = 3; });
    state.write_as<float>(state.layout().weights(1))[3] = 4;
    state.vote(1);
    hash = state.buffer_hash(1);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(open(), 0);
  SharedState state(group.node(), tiny(), [](SharedState&) { FAIL() << "filled again"; });
  EXPECT_EQ(state.committed(), (base::Commit{1, 1}));
  EXPECT_EQ(state.read_as<float>(state.layout().weights(1))[3], 4.0f);
  EXPECT_EQ(state.buffer_hash(1), hash);
}

TEST(SharedState, AGroupCarriesOneModel) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SharedState first(group->node(), tiny(), [](SharedState&) {});
    try {
      SharedState second(group->node(), tiny(), [](SharedState&) {});
      ADD_FAILURE() << "a second model took over the first one's state";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("carries the state of a model already"), std::string::npos);
    }
  });
}

TEST(SharedState, RefusesTheStateOfAnotherModel) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(2), [](SharedState&) {});
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  EXPECT_THROW(SharedState(group.node(), tiny(3), [](SharedState&) {}), Error);
}

TEST(SharedState, TakesOverTheNumberOfBuffersThatItFinds) {
  base::Segment segment = base::Segment::create(1);
  const auto open = [&] { return base::Segment::open(segment.path(), 1); };
  {
    comm::ShmGroup group(open(), 0);
    SharedState state(group.node(), tiny(2, 3), [](SharedState&) {});
    for (std::uint64_t step : {1, 2}) {
      state.write_as<float>(state.layout().weights(state.target()))[3] = float(step);
      state.vote(step);
    }
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(open(), 0);
  SharedState state(group.node(), tiny(2, 2), [](SharedState&) { FAIL() << "filled again"; });
  EXPECT_EQ(state.layout().options().state_buffers, 3);
  EXPECT_EQ(state.committed(), (base::Commit{2, 2}));
  EXPECT_EQ(state.read_as<float>(state.layout().weights(2))[3], 2.0f);
}

TEST(SharedState, AStateUpdatedInPlaceIsNotTakenOver) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(2, 1), [](SharedState&) {});
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  EXPECT_THROW(SharedState(group.node(), tiny(2, 2), [](SharedState&) {}), Error);
}

// The generation of `ranks` threads runs three steps; each step writes its number to all weights.
void three_steps(const base::Segment& segment, int ranks) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      comm::ShmGroup group(base::Segment::open(segment.path(), ranks), rank, std::chrono::seconds(20));
      SharedState state(group.node(), tiny(5), [](SharedState&) {});
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t step = state.committed().step + 1;
        const float* before = state.read_as<float>(state.layout().weights(int(state.committed().buffer)));
        for (int at = 0; at < 40; ++at) EXPECT_EQ(before[at], float(step - 1)) << ranks << " ranks";
        group.barrier();
        auto* weights = state.write_as<float>(state.layout().weights(state.target()));
        for (int at = 40 * rank / ranks; at < 40 * (rank + 1) / ranks; ++at) weights[at] = float(step);
        state.vote(step);
      }
      group.barrier();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedState, GoesOnWithMoreAndFewerRanks) {
  base::Segment segment = base::Segment::create(3);
  std::uint64_t steps = 0;
  for (const int next : {1, 5, 2, 4, 1, 3}) {
    three_steps(segment, segment.control().local_world);
    steps += 3;
    EXPECT_EQ(base::Commit::unpack(segment.control().commit.load()).step, steps);
    base::next_generation(segment.control(), next);
  }
}

std::size_t memory_of(const base::Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return std::size_t(status.st_blocks) * 512;
}

// Dies while it fills the region.
void die_in_fill(const base::Segment& segment) {
  const pid_t child = fork();
  if (child == 0) {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(), [](SharedState& fresh) {
      std::memset(fresh.write(0), 7, fresh.layout().total_bytes());
      kill(getpid(), SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(SharedState, ADeathWhileTheRegionIsMadeCostsNoMemory) {
  base::Segment segment = base::Segment::create(1);
  die_in_fill(segment);
  const std::size_t once = memory_of(segment);
  for (int i = 0; i < 3; ++i) {
    base::next_generation(segment.control(), 1);
    die_in_fill(segment);
    EXPECT_EQ(memory_of(segment), once);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), tiny(), [](SharedState& fresh) {
    const auto* bytes = fresh.read(0);
    for (std::size_t at = 0; at < fresh.layout().total_bytes(); ++at) ASSERT_EQ(bytes[at], std::byte(0)) << at;
  });
  EXPECT_EQ(memory_of(segment), once);
  EXPECT_EQ(state.committed(), base::Commit{});
}

TEST(SharedState, AStaleRankCommitsNothing) {
  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup old_group(base::Segment::open(segment.path(), 1), 0);
  SharedState old_state(old_group.node(), tiny(), [](SharedState&) {});
  base::next_generation(segment.control(), 1);
  EXPECT_THROW(old_state.vote(1), GroupAborted);
  EXPECT_THROW(old_state.recommit(1), GroupAborted);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), tiny(), [](SharedState&) { FAIL() << "filled again"; });
  state.vote(1);
  EXPECT_THROW(old_state.vote(1), GroupAborted) << "the step is committed, but by others";
  EXPECT_THROW(old_state.vote(2), GroupAborted);
  EXPECT_THROW(old_group.barrier(), GroupAborted);
  EXPECT_EQ(state.committed(), (base::Commit{1, 1}));
}

// The next generation writes its number into the commit word first, then tells the page: between the two, nothing but
// the word says that this one is over.
TEST(SharedState, RecommitsNothingOverTheNextGenerationsWord) {
  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), tiny(), [](SharedState&) {});
  const base::Mark next = base::Commit{0, 0}.pack(2);
  segment.control().commit.store(next);
  EXPECT_THROW(state.recommit(1), GroupAborted);
  EXPECT_EQ(segment.control().commit.load(), next);
}

TEST(SharedState, TooLittleMemoryReachesEveryRankAsOneError) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    const Layout huge({{"w", c10::ScalarType::Float, {std::int64_t(1) << 42}, {1}}}, {}, {});
    try {
      SharedState state(group->node(), huge, [](SharedState&) {});
      ADD_FAILURE() << "took 64 TiB";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("shared memory too small"), std::string::npos) << error.what();
      EXPECT_EQ(exit_code(error), kExitUsage);
    }
  });
}

}  // namespace
}  // namespace lockstep::state
