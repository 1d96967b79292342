#include "lockstep/state/shared_state.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/ranks.h"

namespace lockstep::state {
namespace {

using support::RankKind;
using support::run_ranks;

Layout tiny(int shards = 2) {
  return {
      {{"w", c10::ScalarType::Float, {40}, {1}}}, {}, {.shards = shards, .optimizer_arrays = 1, .state_buffers = 2}};
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
  base::next_generation(segment.control());
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
  base::next_generation(segment.control());
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  EXPECT_THROW(SharedState(group.node(), tiny(3), [](SharedState&) {}), Error);
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
