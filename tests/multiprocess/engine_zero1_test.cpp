// Nodes that share out the optimizer's state: the bits of one, whichever rank is killed, and a job that begins anew,
// and says so, where a share is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/collectives.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/state/hash.h"
#include "lockstep/state/shared_state.h"
#include "tests/support/ambush.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/machines.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using base::Phase;
using support::disturbed_job;
using support::hash_of;
using support::Machines;
using support::nodes_hash;
using support::RankKind;
using support::run_nodes;
using support::run_ranks;
using support::SharedText;
using support::SmallJob;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

SmallJob in_shares(SmallJob job, bool copied = false) {
  job.zero1 = true;
  job.zero1_copy = copied;
  return job;
}

// SmallNet has three blocks, so of four nodes one has nothing to update.
TEST(Zero1, HasTheBitsOfOne) {
  for (const auto& optimizer : {support::small_sgd(), support::small_adam()}) {
    const SmallJob job{.shards = 4, .steps = 4, .optimizer = optimizer};
    const std::string one = hash_of(1, job);
    for (const std::vector<int>& nodes :
         std::vector<std::vector<int>>{{1, 1}, {2, 2}, {3, 1}, {1, 2}, {1, 1, 1}, {1, 1, 1, 1}})
      EXPECT_EQ(nodes_hash(nodes, in_shares(job)), one) << ::testing::PrintToString(nodes);
  }
}

TEST(Zero1, HasTheBitsOfOneWithManyShards) {
  const SmallJob job{.shards = 9, .steps = 3, .optimizer = support::small_adam()};
  EXPECT_EQ(nodes_hash({1, 1, 1}, in_shares(job)), hash_of(1, job));
}

TEST(Zero1, HasTheBitsOfOneWithCopies) {
  const SmallJob job{.shards = 4, .steps = 3, .optimizer = support::small_adam()};
  const std::string one = hash_of(1, job);
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {3, 1}, {1, 2, 1}, {1, 1, 1, 1}})
    EXPECT_EQ(nodes_hash(nodes, in_shares(job, /*copied=*/true)), one) << ::testing::PrintToString(nodes);
}

// What a job with an average shows of itself.
std::string shown_by(Engine& engine) { return engine.weights_hash() + state::tensors_hash(engine.ema().state_dict()); }

std::string last_text(const std::function<void(const support::RankBody&)>& run, SmallJob job) {
  SharedText text;
  run([&](const std::shared_ptr<comm::Group>& group) {
    SmallJob mine = job;
    mine.after_step = [&](Engine& engine) {
      if (engine.steps() == job.steps && group->rank() == 0) text.set(shown_by(engine));
    };
    run_small_job(group, mine);
  });
  return text.get();
}

// Groups, averages, scaled losses that overflow, clipping by two norms and by value, unused parameters, several passes,
// kept bytes; gradients of two kinds and bfloat16 copies; in waves and in one.
TEST(Zero1, HasTheBitsOfOneWithAllOptions) {
  for (const Amp amp : {Amp::none, Amp::bf16})
    for (const std::size_t overlap_bytes : {std::size_t(0), std::size_t(1024)}) {
      SmallJob job = disturbed_job(amp, 6);
      job.overlap_bytes = overlap_bytes;
      const std::string one = last_text([](const auto& body) { run_ranks(RankKind::single, 1, body); }, job);
      const std::string two = last_text([](const auto& body) { run_nodes({2, 1}, body); }, in_shares(job));
      EXPECT_EQ(two, one) << int(amp) << ", waves of " << overlap_bytes;
      EXPECT_NE(one, "");
      const std::string three = last_text(
          [](const auto& body) {
            run_nodes({1, 1, 1}, body);
          },
          in_shares(job, /*copied=*/true));
      EXPECT_EQ(three, one) << int(amp) << ", waves of " << overlap_bytes << ", with copies";
    }
}

TEST(Zero1, HasTheBitsOfEachReduction) {
  SmallJob job{.shards = 4, .steps = 3};
  job.reduction = Reduction::fast;
  EXPECT_EQ(nodes_hash({3, 1}, in_shares(job)), nodes_hash({3, 1}, job));
  EXPECT_EQ(nodes_hash({2, 1, 1}, in_shares(job, /*copied=*/true)), nodes_hash({2, 1, 1}, job));
}

TEST(Zero1, TakesOverAnEdit) {
  SmallJob job{.shards = 2, .steps = 3, .optimizer = support::small_adam()};
  job.after_step = [](Engine& engine) {
    engine.modify([&] {
      for (at::Tensor& parameter : engine.module().parameters()) parameter.mul_(0.5);
    });
  };
  const std::string one = hash_of(1, job);
  EXPECT_EQ(nodes_hash({1, 1}, in_shares(job)), one);
  EXPECT_EQ(nodes_hash({1, 1}, in_shares(job, /*copied=*/true)), one);
}

// Each node has memory for its share of Adam's two arrays, in each of two buffers.
TEST(Zero1, TakesMemoryForAShareOnly) {
  run_nodes({1, 2}, [](const std::shared_ptr<comm::Group>& group) {
    torch::nn::Linear model(512, 512), other(512, 512);
    DistributedDataParallel shared_out(model, group, {.shards = 3, .zero1 = true});
    DistributedDataParallel whole(other, group, {.name = "whole", .shards = 3});
    optim::Adam one(shared_out, {.lr = 0.1}), two(whole, {.lr = 0.1});
    const state::Layout& layout = shared_out.state().shared()->layout();
    const std::size_t array = layout.elements() * sizeof(float);
    EXPECT_LE(layout.total_bytes() + 3 * array / 2, whole.state().shared()->layout().total_bytes());
    EXPECT_EQ(layout.share(), layout.slice(group->topology().node, 2));
  });
}

class Zero1Traffic : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Copied, Zero1Traffic, ::testing::Bool());

TEST_P(Zero1Traffic, IsWhatIsSaid) {
  SharedText counted;
  ::testing::internal::CaptureStderr();
  run_nodes({2, 1, 1}, [&](const std::shared_ptr<comm::Group>& group) {
    torch::nn::Linear model(200, 300);
    DistributedDataParallel ddp(model, group,
                                {.shards = 4, .overlap_bytes = 0, .zero1 = true, .zero1_copy = GetParam()});
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    const auto bytes_of_step = [&](const optim::StepOptions& options) {
      const std::uint64_t before = group->wire()->bytes_sent();
      ddp(torch::ones({1, 200})).sum().backward();
      optimizer.step(options);
      const at::Tensor by_node = torch::zeros({group->topology().nodes}, torch::kLong);
      by_node[group->topology().node] = std::int64_t(group->wire()->bytes_sent() - before);
      group->all_reduce(by_node);
      return by_node;
    };
    bytes_of_step({});
    const at::Tensor usual = bytes_of_step({}), with_norm = bytes_of_step({.max_norm = 1});
    const auto all = usual.sum().item<std::int64_t>();
    if (group->rank() == 0)
      counted.set("lockstep: 3 nodes send each other " + std::to_string(all) + " bytes in each step, one of them " +
                  std::to_string(usual.max().item<std::int64_t>()) + "; a norm of the gradients takes " +
                  std::to_string(with_norm.sum().item<std::int64_t>() - all) + " more\n");
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(counted.get()));
  EXPECT_NE(counted.get(), "");
}

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// On all ranks, whichever node has its gradients.
TEST(Zero1, NamesTheFirstParameterWhoseGradientIsNotFinite) {
  for (const char* const name : {"fc1.weight", "fc3.bias"})
    run_nodes({1, 2}, [&](const std::shared_ptr<comm::Group>& group) {
      support::SmallNet model;
      DistributedDataParallel ddp(model, group, {.zero1 = true});
      optim::SGD optimizer(ddp, {.lr = 0.1});
      for (const auto& parameter : model->named_parameters())
        if (parameter.key() == name)
          parameter.value().register_hook([](const at::Tensor& gradient) { return gradient * kNotANumber; });
      ddp(torch::ones({2, 20})).sum().backward();
      EXPECT_THAT(support::what_of([&] { optimizer.step({.error_if_nonfinite = true}); }),
                  HasSubstr("the first parameter whose gradient is not finite is '" + std::string(name) + "'"));
      EXPECT_EQ(ddp.steps(), 0u);
    });
}

TEST(Zero1, ComparesWhatAllNodesHave) {
  SmallJob job = in_shares({.shards = 3, .steps = 4, .optimizer = support::small_adam(), .verify_every = 1});
  EXPECT_EQ(nodes_hash({2, 1}, job), hash_of(1, {.shards = 3, .steps = 4, .optimizer = support::small_adam()}));
  run_nodes({2, 1}, [&](const std::shared_ptr<comm::Group>& group) {
    SmallJob flipped = job;
    flipped.after_step = [&](Engine& engine) {
      if (group->rank() == 2 && engine.steps() == 2) support::flip_bit(engine, "fc2.weight");
    };
    EXPECT_THAT(support::what_of([&] { run_small_job(group, flipped); }),
                HasSubstr("has other values of parameter 'fc2.weight' after step 2"));
    group->barrier();
  });
}

TEST(Zero1, IsRefusedBesideWhatNeedsAll) {
  run_nodes({1, 1}, [](const std::shared_ptr<comm::Group>& group) {
    torch::nn::Linear a(2, 2), b(2, 2), c(2, 2);
    DistributedDataParallel one(a, group, {.name = "a", .zero1 = true}), two(b, group, {.name = "b", .zero1 = true});
    DistributedDataParallel three(c, group, {.name = "c", .zero1 = true});
    EXPECT_THAT(support::what_of([&] { optim::LAMB optimizer(three, {.lr = 0.1}); }), HasSubstr("norms over each"));
    optim::SGD first(one, {.lr = 0.1}), second(two, {.lr = 0.1});
    EXPECT_THAT(support::what_of([&] { commit_together(one, two); }),
                HasSubstr("commit_together() of a model with zero1"));
  });
}

// ---- restarts

// Of one rank, undisturbed: what the job shows at each step.
std::vector<std::string> history_of(std::uint64_t steps) {
  std::vector<std::string> texts;
  run_ranks(RankKind::single, 1, [&](const std::shared_ptr<comm::Group>& group) {
    SmallJob job = disturbed_job(Amp::none, steps);
    job.after_step = [&](Engine& engine) { texts.push_back(shown_by(engine)); };
    run_small_job(group, job);
  });
  return texts;
}

struct BlowOnShares {
  int victim = -1;
  std::uint64_t behind = 0;  // the step
  support::Ambush ambush;
};

// 0: each state on the way to `until` was the history's, the first one that of a step from `least` to `most`.
int go_on_in_shares(const std::shared_ptr<comm::Group>& group, const std::vector<std::string>& history,
                    std::uint64_t until, std::uint64_t least, std::uint64_t most, const BlowOnShares& blow = {},
                    bool copied = false) {
  SmallJob job = in_shares(disturbed_job(Amp::none, until), copied);
  job.overlap_bytes = 1024;
  bool same = true;
  std::optional<std::uint64_t> first;
  job.after_step = [&](Engine& engine) {
    first = first.value_or(engine.steps());
    same = same && shown_by(engine) == history.at(engine.steps());
    if (group->rank() == blow.victim && engine.steps() == blow.behind) lay(blow.ambush, group->node().member.words());
  };
  run_small_job(group, job);
  return !same ? 3 : *first < least || *first > most ? 4 : 0;
}

void kill_in_shares(const std::vector<std::string>& history, const std::vector<int>& nodes, const BlowOnShares& blow,
                    bool copied) {
  SCOPED_TRACE("rank " + std::to_string(blow.victim) + " of " + ::testing::PrintToString(nodes) + " killed in " +
               std::string(to_string(blow.ambush.phase)) + (copied ? ", with copies" : ""));
  Machines machines(nodes);
  const auto codes = machines.run([&](auto group) { return go_on_in_shares(group, history, 5, 0, 0, blow, copied); });
  for (int rank = 0; rank < int(codes.size()); ++rank)
    EXPECT_EQ(codes[std::size_t(rank)], rank == blow.victim ? -1 : support::kAbortedCode) << rank;
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 5, 2, 3, {}, copied); }), Each(0));
}

// The nodes are there still, so nothing is lost.
TEST(Zero1, LosesNothingWhenARankIsKilled) {
  const std::vector<std::string> history = history_of(5);
  unsigned instructions = 7;
  int turn = 0;
  for (const Phase phase : {Phase::forward, Phase::gather, Phase::update, Phase::vote, Phase::flip}) {
    instructions = instructions * 5 % 4093;
    const BlowOnShares blow{
        .victim = turn % 3, .behind = 2, .ambush = {.phase = phase, .instructions = instructions, .signal = SIGKILL}};
    const std::vector<int> nodes = turn++ % 2 == 0 ? std::vector<int>{2, 1} : std::vector<int>{1, 1, 1};
    kill_in_shares(history, nodes, blow, /*copied=*/false);
    if (phase == Phase::gather || phase == Phase::flip) kill_in_shares(history, {1, 1, 1}, blow, /*copied=*/true);
  }
}

// As a death between the commits of two nodes leaves it.
TEST(Zero1, GoesBackByTheStepThatNotAllHave) {
  const std::vector<std::string> history = history_of(5);
  for (const std::size_t behind : {0, 1}) {
    Machines machines({1, 2});
    EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 3, 0, 0); }), Each(0));
    machines.take_back_a_step(behind);
    EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 5, 2, 2); }), Each(0)) << behind;
  }
}

// Where nodes have gone apart in what all have, the share of that step is there all the same. Node 1 has another bit in
// a weight that node 0 updates, so behind the next step it shows no more.
TEST(Zero1, GoesBackToItsShareWhereTheRestIsAnothers) {
  Machines machines({1, 1});
  const auto go_on = [](const std::shared_ptr<comm::Group>& group, std::uint64_t from, std::uint64_t until) {
    SmallJob job = in_shares({.shards = 2, .steps = until, .optimizer = support::small_adam()});
    std::optional<std::uint64_t> first;
    job.after_step = [&](Engine& engine) {
      first = first.value_or(engine.steps());
      if (until == 3 && engine.steps() == 2 && group->rank() == 1) support::flip_bit(engine, "fc1.weight");
    };
    const std::string mine = run_small_job(group, job);
    const auto is_mine = [&](const std::string& theirs) { return theirs == mine; };
    return first != from ? 4 : std::ranges::all_of(comm::all_gather_bytes(*group, mine), is_mine) ? 0 : 3;
  };
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 0, 3); }), Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([&](auto group) { return go_on(group, 2, 4); }), Each(0));
}

TEST(Zero1, BeginsAnewWhereAShareIsLost) {
  const std::vector<std::string> history = history_of(4);
  Machines machines({1, 2});
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 2, 0, 0); }), Each(0));
  base::Segment kept = machines.sit_out(1);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 2, 0, 0); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("lockstep: zero1: the state in memory is not whole (node 1 has nothing of it): the job begins "
                        "anew, for there is no checkpoint\n"));
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 3, 2, 2); }), Each(0));
  // What it had then is no share of what the job has now.
  machines.come_back(1, std::move(kept));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 4, 0, 0); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("(node 1 has a share of another one)"));
}

TEST(Zero1, BeginsAnewWithoutANode) {
  const std::vector<std::string> history = history_of(4);
  Machines machines({1, 1});
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 2, 0, 0); }), Each(0));
  machines.leave(0);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 3, 0, 0); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("(it is in 2 shares, and the nodes are 1)"));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 4, 3, 3); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("not whole")));
}

// As long as the next one is left, which has a copy of its share; with another in its place, and without.
TEST(Zero1, LosesNothingWithANodeWhoseShareIsCopied) {
  const std::vector<std::string> history = history_of(5);
  const auto go_on = [&](Machines& machines, std::uint64_t until, std::uint64_t from) {
    return machines.run(
        [&](auto group) { return go_on_in_shares(group, history, until, from, from, {}, /*copied=*/true); });
  };
  for (const std::size_t lost : {0, 1, 2}) {
    SCOPED_TRACE("node " + std::to_string(lost));
    Machines machines({1, 1, 1});
    EXPECT_THAT(go_on(machines, 2, 0), Each(0));
    machines.take_back_a_step((lost + 1) % 3);
    machines.lose(lost);
    EXPECT_THAT(go_on(machines, 3, 1), Each(0));
    machines.leave(lost);
    EXPECT_THAT(go_on(machines, 4, 3), Each(0));
    machines.leave(0);
    EXPECT_THAT(go_on(machines, 5, 4), Each(0)) << "each of two has all";
  }
  Machines machines({1, 1, 1});
  EXPECT_THAT(go_on(machines, 2, 0), Each(0));
  machines.lose(0);
  machines.lose(1);
  EXPECT_THAT(go_on(machines, 2, 0), Each(0)) << "a share, and the copy of it, are lost";
}

// What is there is shared out anew, whoever had it: of a node that has all of it, among two, and three.
TEST(Zero1, GoesOnWithMoreNodes) {
  const std::vector<std::string> history = history_of(5);
  Machines machines({1});
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 1, 0, 0); }), Each(0));
  machines.come(1);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 2, 1, 1); }), Each(0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("lockstep: zero1: the optimizer's state in memory is shared out anew (it is in 1 share, and "
                        "the nodes are 2): the job goes on from step 1\n"));
  machines.come_in(0, 1, base::Segment::create(1));
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 4, 2, 2); }), Each(0));
  machines.take_back_a_step(1);
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 5, 3, 3); }), Each(0));
}

TEST(Zero1, GoesOnWithNodesInAnotherOrder) {
  const std::vector<std::string> history = history_of(4);
  Machines machines({1, 1});
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 3, 0, 0); }), Each(0));
  machines.take_back_a_step(0);
  base::Segment first = machines.sit_out(0), second = machines.sit_out(1);
  machines.come_back(0, std::move(second));
  machines.come_back(1, std::move(first));
  EXPECT_THAT(machines.run([&](auto group) { return go_on_in_shares(group, history, 4, 2, 2); }), Each(0));
}

}  // namespace
}  // namespace lockstep::parallel
