// Several models' states in one segment.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/state/shared_state.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::state {
namespace {

Layout layout_of(int shards = 2, int buffers = 2) {
  return {{{"w", c10::ScalarType::Float, {40}, {1}}},
          {},
          {.shards = shards, .slots = shards, .optimizer_arrays = 1, .state_buffers = buffers}};
}

std::uint64_t zeros(SharedState&) { return 0; }
std::uint64_t not_filled_again(SharedState&) {
  ADD_FAILURE() << "filled again";
  return 0;
}

TEST(Regions, EachModelHasItsOwn) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState first(group.node(), layout_of(2), zeros);
    SharedState second(group.node(), layout_of(5, 3), zeros, "second");
    for (const std::uint64_t step : {1, 2, 3}) {
      first.choose_target(step);
      second.choose_target(step);
      second.write_as<float>(second.layout().weights(second.target(step)))[3] = float(step);
      second.vote(step);
      EXPECT_EQ(first.committed().step, step - 1);
      first.vote(step);
    }
    first.choose_target(4);
    first.vote(4);
  }
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState first(group.node(), layout_of(2), not_filled_again);
  SharedState second(group.node(), layout_of(5), not_filled_again, "second");
  EXPECT_EQ(first.committed(), (base::Commit{4, 0}));
  EXPECT_EQ(first.layout().options().state_buffers, 2);
  EXPECT_EQ(second.committed(), (base::Commit{3, 0}));
  EXPECT_EQ(second.layout().options().state_buffers, 3);
  EXPECT_EQ(second.read_as<float>(second.layout().weights(0))[3], 3.0f);
  EXPECT_EQ(first.read_as<float>(first.layout().weights(0))[3], 0.0f);
  SharedState third(group.node(), layout_of(), zeros, "third"), fourth(group.node(), layout_of(), zeros, "fourth");
  EXPECT_NE(support::what_of([&] {
              SharedState(group.node(), layout_of(), zeros, "fifth");
            }).find("a group carries at most 4 models, and the one named 'fifth' is one more"),
            std::string::npos);
}

// In another order than before.
TEST(Regions, AreFoundByTheirNames) {
  base::Segment segment = base::Segment::create(1);
  const auto fill = [](float weight) {
    return [weight](SharedState& fresh) {
      fresh.write_as<float>(fresh.layout().weights(0))[3] = weight;
      return 0;
    };
  };
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState d(group.node(), layout_of(), fill(1), "d"), g(group.node(), layout_of(), fill(2), "g");
    EXPECT_NE(d.region(), g.region());
  }
  base::next_generation(segment.control(), 1);
  EXPECT_TRUE(is_committed_in(segment, "g"));
  EXPECT_FALSE(is_committed_in(segment, ""));
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState g(group.node(), layout_of(), not_filled_again, "g"), d(group.node(), layout_of(), not_filled_again, "d");
  EXPECT_EQ(d.read_as<float>(d.layout().weights(0))[3], 1.0f);
  EXPECT_EQ(g.read_as<float>(g.layout().weights(0))[3], 2.0f);
}

TEST(Regions, CommitTogether) {
  support::run_ranks(support::RankKind::threads, 3, [](auto group) {
    SharedState d(group->node(), layout_of(3, 3), zeros, "d"), g(group->node(), layout_of(3), zeros, "g");
    SharedState* const both[] = {&d, &g};
    SharedState::commit_together(both);
    for (std::uint64_t step = 1; step <= 50; ++step) {
      for (SharedState* const state : both) {
        if (group->rank() == 0) state->choose_target(step);
        group->barrier();
        const int target = state->target(step);
        state->vote(step);
        ASSERT_EQ(state->committed(), (base::Commit{step, std::uint32_t(target)})) << "to its own ranks";
        if (state == &g) continue;
        EXPECT_EQ(support::what_of([&] { d.check_settled("step"); }),
                  "step: the model named 'd' has made step " + std::to_string(step) +
                      ", which is committed together with that of other models; they make it first");
        EXPECT_EQ(d.pin().commit().step, step - 1) << "to everybody else";
      }
      ASSERT_EQ(d.pin().commit().step, step);
      d.check_settled("step");
    }
    EXPECT_NE(support::what_of([&] { SharedState::commit_together(both); }).find("with others already"),
              std::string::npos);
  });
}

// Of models that commit together the last one's step is where all are left: it must know of the first one's save.
TEST(Regions, AreHeldWithEachOther) {
  base::Segment segment = base::Segment::create(1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState d(group.node(), layout_of(1, 3), zeros, "d"), g(group.node(), layout_of(1, 3), zeros, "g");
  SharedState* const both[] = {&d, &g};
  SharedState::commit_together(both);
  EXPECT_FALSE(d.is_held());
  EXPECT_FALSE(g.is_held());
  for (const SharedState* const saved : both) {
    const Pin save = saved->pin();
    EXPECT_TRUE(d.is_held());
    EXPECT_TRUE(g.is_held());
  }
  EXPECT_FALSE(g.is_held());
}

// Whoever reads what another generation has left is not cut.
TEST(Regions, OfAnotherGenerationAreNobodysToHold) {
  base::Segment segment = base::Segment::create(1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    const SharedState d(group.node(), layout_of(1, 3), zeros, "d"), g(group.node(), layout_of(1, 3), zeros, "g");
  }
  const Pin old(segment, 0);
  base::next_generation(segment.control(), 1);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  const SharedState g(group.node(), layout_of(1), not_filled_again, "g");
  EXPECT_FALSE(g.is_held());
  const SharedState d(group.node(), layout_of(1), not_filled_again, "d");
  EXPECT_TRUE(g.is_held());
}

// Of three blocks, of which the other node of two has the first.
Layout shared_out(int share) {
  return {{{"w", c10::ScalarType::Float, {40'000}, {1}}},
          {},
          {.shards = 2, .slots = 1, .optimizer_arrays = 1, .shares = 2, .share = share}};
}

TEST(Regions, AShareIsFoundByWhatItIsOf) {
  base::Segment segment = base::Segment::create(1);
  EXPECT_FALSE(held_in(segment, "").is_there);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), shared_out(1), [](SharedState& fresh) {
      fresh.write_as<float>(fresh.layout().optimizer_array(0, 0))[39'999] = 4;
      return 7;
    });
    state.publish(1, /*set=*/5);
    EXPECT_FALSE(held_in(segment, "").is_there) << "it is in use";
  }
  base::next_generation(segment.control(), 1);
  const HeldState held = held_in(segment, "");
  EXPECT_TRUE(held.is_there);
  EXPECT_EQ(held.set, 5u);
  EXPECT_EQ(held.shares, 2);
  EXPECT_EQ(held.share, 1);
  EXPECT_FALSE(held_in(segment, "another").is_there);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    SharedState state(group.node(), shared_out(1), not_filled_again);
    EXPECT_EQ(state.set(), 5u);
    EXPECT_EQ(state.read_as<float>(state.layout().optimizer_array(0, 0))[39'999], 4.0f);
  }
  base::next_generation(segment.control(), 1);
  {
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    EXPECT_NE(support::what_of([&] {
                SharedState(group.node(), shared_out(0), not_filled_again);
              }).find("holds share 1 of 2 of the optimizer's state, and this node is to have share 0 of 2"),
              std::string::npos);
  }
  base::next_generation(segment.control(), 1);
  forget(segment, "");
  EXPECT_FALSE(held_in(segment, "").is_there);
  comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
  SharedState state(group.node(), shared_out(0), zeros);
  EXPECT_FALSE(state.taken_over());
  EXPECT_EQ(state.committed(), base::Commit{});
}

// What lies in no share counts, and nothing else.
TEST(Regions, TheCommonHashIsTheSameOfEachShare) {
  const auto hashes_of = [](int share, float weight, float state_of_weight) {
    base::Segment segment = base::Segment::create(1);
    comm::ShmGroup group(base::Segment::open(segment.path(), 1), 0);
    const SharedState state(group.node(), shared_out(share), [&](SharedState& fresh) {
      const Layout& layout = fresh.layout();
      fresh.write_as<float>(layout.weights(0))[3] = weight;
      fresh.write_as<float>(layout.optimizer_array(0, 0))[layout.share().begin] = state_of_weight;
      return 0;
    });
    return std::pair(state.common_hash(0), state.buffer_hash(0));
  };
  const auto [common, whole] = hashes_of(0, 1, 1);
  EXPECT_EQ(hashes_of(1, 1, 2).first, common);
  EXPECT_EQ(hashes_of(0, 1, 2).first, common);
  EXPECT_NE(hashes_of(0, 1, 2).second, whole);
  EXPECT_NE(hashes_of(0, 2, 1).first, common);
}

}  // namespace
}  // namespace lockstep::state
