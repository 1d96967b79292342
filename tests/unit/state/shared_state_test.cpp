#include "lockstep/state/shared_state.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
          {.shards = shards, .slots = shards, .optimizer_arrays = 1, .state_buffers = buffers}};
}

// For a job whose weights begin as zeros.
std::uint64_t nothing(SharedState&) { return 0; }
std::uint64_t not_again(SharedState&) {
  ADD_FAILURE() << "filled again";
  return 0;
}

TEST(SharedState, IsFilledOnceAndSeenByAll) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    int fills = 0;
    SharedState state(group->node(), tiny(), [&](SharedState& fresh) {
      ++fills;
      for (int i = 0; i < 40; ++i) fresh.write_as<float>(fresh.layout().weights(0))[i] = float(i);
      return 0;
    });
    EXPECT_EQ(fills, group->rank() == 0 ? 1 : 0);
    EXPECT_EQ(state.read_as<float>(state.layout().weights(0))[39], 39.0f);
    EXPECT_EQ(state.committed(), base::Commit{});
    group->barrier();
  });
}

TEST(SharedState, AStepIsCommittedOnlyWhenAllHaveVoted) {
  run_ranks(RankKind::threads, 4, [](auto group) {
    SharedState state(group->node(), tiny(4), nothing);
    for (std::uint64_t step = 1; step <= 200; ++step) {
      if (group->rank() == 0) state.choose_target(step);
      group->barrier();
      const int target = state.target(step);
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
    SharedState state(group.node(), tiny(), [](SharedState& fresh) {
      fresh.write_as<float>(fresh.layout().weights(0))[3] = 3;
      return 0;
    });
    state.choose_target(1);
    state.write_as<float>(state.layout().weights(1))[3] = 4;
    state.vote(1);
    hash = state.buffer_hash(1);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(open(), 0);
  SharedState state(group.node(), tiny(), not_again);
  EXPECT_EQ(state.committed(), (base::Commit{1, 1}));
  EXPECT_EQ(state.read_as<float>(state.layout().weights(1))[3], 4.0f);
  EXPECT_EQ(state.buffer_hash(1), hash);
}

TEST(SharedState, AGroupCarriesOneModel) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SharedState first(group->node(), tiny(), nothing);
    try {
      SharedState second(group->node(), tiny(), nothing);
      ADD_FAILURE() << "a second model took over the first one's state";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the state of a model without a name already"), std::string::npos);
    }
  });
}

TEST(SharedState, RefusesTheStateOfAnotherModel) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(2), nothing);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  EXPECT_THROW(SharedState(group.node(), tiny(3), nothing), Error);
}

TEST(SharedState, TakesOverTheNumberOfBuffersThatItFinds) {
  base::Segment segment = base::Segment::create(1);
  const auto open = [&] { return base::Segment::open(segment.path(), 1); };
  {
    comm::ShmGroup group(open(), 0);
    SharedState state(group.node(), tiny(2, 3), nothing);
    for (std::uint64_t step : {1, 2}) {
      state.choose_target(step);
      state.write_as<float>(state.layout().weights(state.target(step)))[3] = float(step);
      state.vote(step);
    }
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(open(), 0);
  SharedState state(group.node(), tiny(2, 2), not_again);
  EXPECT_EQ(state.layout().options().state_buffers, 3);
  EXPECT_EQ(state.committed(), (base::Commit{2, 2}));
  EXPECT_EQ(state.read_as<float>(state.layout().weights(2))[3], 2.0f);
}

TEST(SharedState, AStateUpdatedInPlaceIsNotTakenOver) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(2, 1), nothing);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  EXPECT_THROW(SharedState(group.node(), tiny(2, 2), nothing), Error);
}

// The generation of `ranks` threads runs three steps; each step writes its number to all weights.
void three_steps(const base::Segment& segment, int ranks) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      comm::ShmGroup group(base::Segment::open(segment.path(), ranks), rank, std::chrono::seconds(20));
      SharedState state(group.node(), tiny(5), nothing);
      for (int i = 0; i < 3; ++i) {
        const std::uint64_t step = state.committed().step + 1;
        const float* before = state.read_as<float>(state.layout().weights(int(state.committed().buffer)));
        for (int at = 0; at < 40; ++at) EXPECT_EQ(before[at], float(step - 1)) << ranks << " ranks";
        if (rank == 0) state.choose_target(step);
        group.barrier();
        auto* weights = state.write_as<float>(state.layout().weights(state.target(step)));
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
    EXPECT_EQ(base::committed(segment.control().regions[0])->step, steps);
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
      return 0;
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
    const std::byte* bytes = fresh.read(0);
    const auto is_zero = [](std::byte byte) { return byte == std::byte(0); };
    EXPECT_TRUE(std::all_of(bytes, bytes + fresh.layout().total_bytes(), is_zero));
    return 0;
  });
  EXPECT_EQ(memory_of(segment), once);
  EXPECT_EQ(state.committed(), base::Commit{});
}

// As from a checkpoint: weights and optimizer state of another run.
TEST(SharedState, BeginsAtTheStepThatWasFilledIn) {
  run_ranks(RankKind::threads, 2, [](auto group) {
    SharedState state(group->node(), tiny(), [](SharedState& fresh) {
      fresh.write_as<float>(fresh.layout().weights(0))[3] = 3;
      fresh.write_as<float>(fresh.layout().optimizer_array(0, 0))[3] = 4;
      return 7;
    });
    EXPECT_EQ(state.committed(), (base::Commit{7, 0}));
    EXPECT_EQ(state.read_as<float>(state.layout().weights(0))[3], 3.0f);
    EXPECT_EQ(state.read_as<float>(state.layout().optimizer_array(0, 0))[3], 4.0f);
    if (group->rank() == 0) state.choose_target(8);
    group->barrier();
    state.vote(8);
    EXPECT_EQ(state.committed(), (base::Commit{8, 1}));
    group->barrier();
  });
}

// As one leaves it who dies between its commit and its fingerprint.
TEST(SharedState, AFilledRegionThatNobodyHasSaidIsFilledAgain) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), tiny(), [](SharedState& fresh) {
      fresh.write_as<float>(fresh.layout().weights(0))[3] = 3;
      return 7;
    });
  }
  base::RegionWords& words = segment.control().regions[0];
  words.fingerprint.store(0);
  EXPECT_EQ(base::committed(words), std::nullopt);
  base::next_generation(segment.control(), 1);
  EXPECT_EQ(base::committed(words), std::nullopt);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), tiny(), nothing);
  EXPECT_EQ(state.committed(), base::Commit{});
  EXPECT_EQ(state.read_as<float>(state.layout().weights(0))[3], 0.0f);
}

// The update reads the padding, too.
TEST(SharedState, MoreSlotsThanBeforeFindNothingInThem) {
  const auto layout = [](int slots) {
    return Layout({{"w", c10::ScalarType::Float, {40}, {1}}}, {}, {.shards = 4, .slots = slots});
  };
  base::Segment segment = base::Segment::create(1);
  const auto with = [&](int slots, const SharedState::Fill& fill, const std::function<void(SharedState&)>& body) {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), layout(slots), fill);
    state.publish(1);
    body(state);
    base::next_generation(segment.control(), 1);
  };
  with(1, nothing, [](SharedState& state) { *state.write_as<double>(state.layout().block_sums()) = 7; });
  with(4, not_again, [](SharedState& state) {
    const auto* slots = state.read_as<char>(state.layout().gradients(0));
    const std::size_t bytes = state.layout().total_bytes() - state.layout().gradients(0);
    EXPECT_TRUE(std::all_of(slots, slots + bytes, [](char byte) { return byte == 0; }));
  });
}

// A death while several nodes agree on a state leaves none that the next generation would take for one.
TEST(SharedState, OfSeveralNodesIsNoneUntilTheyAgree) {
  const Layout layout({{"w", c10::ScalarType::Float, {40}, {1}}}, {}, {.shards = 4, .slots = 2});
  base::Segment segment = base::Segment::create(1);
  int fills = 0;
  const auto fill = [&](SharedState&) {
    ++fills;
    return 0;
  };
  for (int generation = 0; generation < 3; ++generation) {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), layout, fill);
    EXPECT_EQ(state.taken_over(), generation == 2);
    EXPECT_EQ(is_committed_in(segment, ""), generation == 2);
    if (generation == 1) state.publish(1);
    base::next_generation(segment.control(), 1);
  }
  EXPECT_EQ(fills, 2);
}

TEST(SharedState, AStaleRankCommitsNothing) {
  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup old_group(base::Segment::open(segment.path(), 1), 0);
  SharedState old_state(old_group.node(), tiny(), nothing);
  base::next_generation(segment.control(), 1);
  EXPECT_THROW(old_state.choose_target(1), GroupAborted);
  EXPECT_THROW(old_state.vote(1), GroupAborted);
  EXPECT_THROW(old_state.recommit(), GroupAborted);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), tiny(), not_again);
  state.choose_target(1);
  EXPECT_THROW(old_state.choose_target(1), GroupAborted);
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
  SharedState state(group.node(), tiny(), nothing);
  state.choose_target(0);
  base::RegionWords& words = segment.control().regions[0];
  const base::Mark next = base::Commit{0, 0}.pack(2);
  words.commit.store(next);
  EXPECT_THROW(state.recommit(), GroupAborted);
  EXPECT_EQ(words.commit.load(), next);
}

TEST(SharedState, TooLittleMemoryReachesEveryRankAsOneError) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    const Layout huge({{"w", c10::ScalarType::Float, {std::int64_t(1) << 42}, {1}}}, {}, {});
    try {
      SharedState state(group->node(), huge, nothing);
      ADD_FAILURE() << "took 64 TiB";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("shared memory too small"), std::string::npos) << error.what();
      EXPECT_EQ(exit_code(error), kExitUsage);
    }
  });
}

}  // namespace
}  // namespace lockstep::state
