// Two models that commit together on several nodes: whatever ends a job, they go on from one step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "tests/support/ambush.h"
#include "tests/support/gan.h"
#include "tests/support/machines.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::Gan;
using support::Machines;
using ::testing::Each;

constexpr std::uint64_t kGanSteps = 5;

std::string gan_bits_of_one() {
  support::SharedText result;
  support::run_ranks(support::RankKind::single, 1, [&](auto group) {
    Gan gan(group);
    for (std::uint64_t step = 1; step <= kGanSteps; ++step) gan.train(step);
    result.set(gan.hash());
  });
  return result.get();
}

// From where both are, which must be `from` unless that is 0, to the end and the bits of one rank.
int train_to_the_end(const std::shared_ptr<comm::Group>& group, const std::string& wanted, std::uint64_t from = 0) {
  Gan gan(group);
  if (gan.d.steps() != gan.g.steps() || (from != 0 && gan.d.steps() != from)) return 4;
  for (std::uint64_t step = gan.d.next_step(); step <= kGanSteps; ++step) gan.train(step);
  const bool same = gan.hash() == wanted;
  group->barrier();
  return same ? 0 : 3;
}

TEST(TwoModels, OverNodesHaveTheBitsOfOneRank) {
  const std::string wanted = gan_bits_of_one();
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 1}})
    EXPECT_THAT(Machines(nodes).run([&](auto group) { return train_to_the_end(group, wanted); }), Each(0))
        << ::testing::PrintToString(nodes);
}

// What the pass of g leaves in d goes nowhere, so no step has to send again, and none waits with its waves for step().
TEST(TwoModels, OverNodesSendWavesOfWhatIsTrained) {
  const std::string wanted = gan_bits_of_one();
  EXPECT_THAT(Machines({2, 1}).run([&](auto group) {
    Gan gan(group, /*together=*/true, /*overlap_bytes=*/1);
    bool early = true;
    for (std::uint64_t step = 1; step <= kGanSteps; ++step) {
      gan.train(step);
      const WaveData d = gan.d.debug().logging_data().waves, g = gan.g.debug().logging_data().waves;
      early = early && (step == 1 || (d.early == 4 && g.early == 6));
    }
    const bool same = gan.hash() == wanted;
    group->barrier();
    return !same ? 3 : !early ? 4 : 0;
  }),
              Each(0));
}

TEST(TwoModels, OverNodesADeathBetweenTheirStepsTearsNothing) {
  const std::string wanted = gan_bits_of_one();
  unsigned turn = 0;
  for (const bool in_g : {false, true})
    // forward: right before the step of that model
    for (const base::Phase phase : {base::Phase::forward, base::Phase::update, base::Phase::vote, base::Phase::flip}) {
      const std::vector<int> nodes = turn % 2 == 0 ? std::vector<int>{2, 1} : std::vector<int>{1, 1, 1};
      const int victim = int(turn % 3);
      const unsigned instructions = turn * 37 % 300;
      const std::size_t overlap_bytes = turn / 2 % 2;  // 0: each model has one wave
      ++turn;
      Machines machines(nodes);
      const std::vector<int> codes = machines.run([&](auto group) {
        Gan gan(group, /*together=*/true, overlap_bytes);
        gan.train(1);
        gan.train(2);
        const auto strike = [&] {
          if (group->rank() != victim) return;
          if (phase == base::Phase::forward) kill(getpid(), SIGKILL);
          support::lay({.phase = phase, .instructions = instructions, .signal = SIGKILL}, group->node().member.words());
        };
        if (!in_g) strike();
        gan.train_d(3);
        if (in_g) strike();
        gan.train_g(3);
        gan.train(4);
        return 0;
      });
      EXPECT_EQ(codes[std::size_t(victim)], -1);
      EXPECT_THAT(machines.run([&](auto group) { return train_to_the_end(group, wanted); }), Each(0))
          << "rank " << victim << " of nodes " << ::testing::PrintToString(nodes) << " killed in " << (in_g ? "g" : "d")
          << ", " << instructions << " instructions behind the beginning of " << base::to_string(phase);
    }
}

int train_until_three(const std::shared_ptr<comm::Group>& group) {
  Gan gan(group);
  for (std::uint64_t step = 1; step <= 3; ++step) gan.train(step);
  group->barrier();
  return 0;
}

// Asked before d's fourth step, which waits for g's: all leave behind both.
int leave_behind_step_four(const std::shared_ptr<comm::Group>& group) {
  base::ControlPage& page = group->node().member.page();
  Gan gan(group, /*together=*/true, /*overlap_bytes=*/1);
  for (std::uint64_t step = 1; step <= 3; ++step) gan.train(step);
  if (group->rank() == 2 && !base::ask_for_room(page)) return 4;
  bool is_behind_d = false;
  try {
    gan.train_d(4);
    is_behind_d = true;
    gan.train_g(4);
  } catch (const GroupAborted& aborted) {
    return !is_behind_d ? 3 : aborted.failure().exit_code != kExitStopped || !base::has_made_room(page) ? 5 : 0;
  }
  return 6;
}

TEST(TwoModels, OverNodesMakeRoomBehindTheStepOfBoth) {
  const std::string wanted = gan_bits_of_one();
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) { return leave_behind_step_four(group); }), Each(0));
  EXPECT_THAT(machines.run([&](auto group) { return train_to_the_end(group, wanted, 4); }), Each(0));
}

// A start that breaks off before it comes to the second model.
int start_the_first_alone(const std::shared_ptr<comm::Group>& group) {
  DistributedDataParallel<torch::nn::Sequential> d(support::discriminator(), group,
                                                   {.name = "d", .shards = support::kGanShards});
  const optim::Adam optimizer(d, {.lr = 0.01});
  group->barrier();
  return 0;
}

// For the first one counts who was in that start, for the second one the node, too, that it was without: the first is
// ahead.
TEST(TwoModels, OverNodesAreMadeOneBehindAStartThatWasWithoutANode) {
  const std::string wanted = gan_bits_of_one();
  Machines machines({1, 1, 1});
  EXPECT_THAT(machines.run([](auto group) { return train_until_three(group); }), Each(0));
  machines.take_back_a_step(2);
  base::Segment kept = machines.sit_out(2);
  machines.leave(2);
  EXPECT_THAT(machines.run([](auto group) { return start_the_first_alone(group); }), Each(0));
  machines.come_in(2, 1, std::move(kept));
  EXPECT_THAT(machines.run([&](auto group) { return train_to_the_end(group, wanted, 2); }), Each(0));
}

// The first one has gone back to the step of a node that is gone when the second would: that one is ahead.
TEST(TwoModels, OverNodesAreMadeOneBehindAStartInWhichTheNodeThatWasBehindIsLost) {
  const std::string wanted = gan_bits_of_one();
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) { return train_until_three(group); }), Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([](auto group) { return start_the_first_alone(group); }), Each(0));
  machines.lose(1);
  EXPECT_THAT(machines.run([&](auto group) { return train_to_the_end(group, wanted, 2); }), Each(0));
}

// And no other one has come: the job goes on with one node.
TEST(TwoModels, OverNodesAreMadeOneOnTheNodeThatIsLeft) {
  const std::string wanted = gan_bits_of_one();
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) { return train_until_three(group); }), Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([](auto group) { return start_the_first_alone(group); }), Each(0));
  machines.leave(1);
  EXPECT_THAT(machines.run([&](auto group) { return train_to_the_end(group, wanted, 2); }), Each(0));
}

// 0 where they are refused for being at these steps, and stay there.
int is_refused(Gan& gan, comm::Group& group, std::uint64_t d, std::uint64_t g) {
  const std::string said = support::what_of([&] { commit_together(gan.d, gan.g); });
  const std::string why = "is at step " + std::to_string(d) + " and the one named 'g' at step " + std::to_string(g);
  const bool stay = gan.d.steps() == d && gan.g.steps() == g;
  group.barrier();
  return said.find(why) == std::string::npos ? 3 : !stay ? 4 : 0;
}

// Steps that this attempt has made are nobody's to take back.
TEST(TwoModels, OverNodesAtDifferentStepsAreRefused) {
  Machines machines({1, 1});
  EXPECT_THAT(machines.run([](auto group) { return train_until_three(group); }), Each(0));
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    gan.train_d(4);
    return is_refused(gan, *group, 4, 3);
  }),
              Each(0));
}

// Of models that have made their steps apart so far one is ahead when rank 0 dies, and half of a further step lies
// where its step before was.
int train_apart_until_a_death(const std::shared_ptr<comm::Group>& group) {
  Gan gan(group, /*together=*/false);
  for (std::uint64_t step = gan.d.next_step(); step <= 3; ++step) gan.train(step);
  gan.train_d(4);
  if (group->rank() == 0)
    support::lay({.phase = base::Phase::update, .instructions = 40, .signal = SIGKILL}, group->node().member.words());
  gan.train_d(5);
  return 0;
}

// No other node has that to compare with.
TEST(TwoModels, OverNodesGoBackToNothingThatWasBeingWritten) {
  Machines machines({2, 1});
  EXPECT_EQ(machines.run([](auto group) { return train_apart_until_a_death(group); })[0], -1);
  machines.lose(1);
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    return is_refused(gan, *group, 4, 3);
  }),
              Each(0));
}

// Nor is there another node where the job had gone on with one.
TEST(TwoModels, OnTheNodeThatIsLeftGoBackToNothingThatWasBeingWritten) {
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    gan.train(1);
    group->barrier();
    return 0;
  }),
              Each(0));
  machines.leave(1);
  EXPECT_EQ(machines.run([](auto group) { return train_apart_until_a_death(group); })[0], -1);
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    return is_refused(gan, *group, 4, 3);
  }),
              Each(0));
}

// Nor are those that a job of one node has made: no agreement has come between.
TEST(TwoModels, OnOneNodeAtDifferentStepsAreRefused) {
  Machines machines({2});
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    gan.train(1);
    gan.train_d(2);
    group->barrier();
    return 0;
  }),
              Each(0));
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    return is_refused(gan, *group, 2, 1);
  }),
              Each(0));
}

// Nor is an edit, which has no number of its own.
TEST(TwoModels, OverNodesLoseNoEditToThatTheyAreMadeOne) {
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) { return train_until_three(group); }), Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([](auto group) { return start_the_first_alone(group); }), Each(0));
  machines.lose(1);
  EXPECT_THAT(machines.run([](auto group) {
    Gan gan(group, /*together=*/false);
    gan.g.modify([] {});
    return is_refused(gan, *group, 2, 3);
  }),
              Each(0));
}

// Two models whose states have a third buffer, as those of a program that saves.
struct Saved {
  explicit Saved(const std::shared_ptr<comm::Group>& group, bool both = true)
      : a(torch::nn::Linear(2, 1), group, {.name = "a"}), b(torch::nn::Linear(2, 1), group, {.name = "b"}) {
    a.state().make_holdable();
    b.state().make_holdable();
    of_a.emplace(a, optim::SGDOptions{.lr = 0.1});
    if (both) of_b.emplace(b, optim::SGDOptions{.lr = 0.1});
  }
  void train() {
    a(torch::ones({1, 2})).sum().backward();
    of_a->step();
    b(torch::ones({1, 2})).sum().backward();
    of_b->step();
  }

  DistributedDataParallel<torch::nn::Linear> a, b;
  std::optional<optim::SGD> of_a, of_b;
};

// Of two buffers of the step one is from before an edit, and has the smaller number here.
TEST(TwoModels, OverNodesLoseNoEditThatABufferIsWithout) {
  Machines machines({2, 1});
  EXPECT_THAT(machines.run([](auto group) {
    Saved saved(group);
    commit_together(saved.a, saved.b);
    saved.train();
    saved.b.modify([&] {
      for (at::Tensor& parameter : saved.b.module().parameters()) parameter.mul_(2);
    });
    saved.train();
    group->barrier();
    return 0;
  }),
              Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([](auto group) {
    const Saved first_alone(group, /*both=*/false);
    group->barrier();
    return 0;
  }),
              Each(0));
  machines.lose(1);
  EXPECT_THAT(machines.run([](auto group) {
    Saved saved(group);
    const std::string said = support::what_of([&] { commit_together(saved.a, saved.b); });
    const bool stays = saved.b.steps() == 2;
    group->barrier();
    return said.find("is at step 1 and the one named 'b' at step 2") == std::string::npos ? 3 : !stays ? 4 : 0;
  }),
              Each(0));
}

}  // namespace
}  // namespace lockstep::parallel
