// Parameters that get no gradient: unused in some shards or in all, frozen and unfrozen between steps, across restarts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <string>
#include <vector>

#include "lockstep/base/generation.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep {
namespace {

using support::maker;
using support::RankKind;
using support::run_ranks;
using ::testing::HasSubstr;

// Two branches of which a pass takes either or both.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl()
      : trunk(register_module("trunk", torch::nn::Linear(20, 40))),
        left(register_module("left", torch::nn::Linear(40, 5))),
        right(register_module("right", torch::nn::Linear(40, 5))) {}
  at::Tensor forward(const at::Tensor& x, bool goes_left, bool goes_right) {
    const at::Tensor h = torch::relu(trunk(x));
    return goes_left && goes_right ? left(h) + right(h) : goes_left ? left(h) : right(h);
  }
  torch::nn::Linear trunk, left, right;
};
TORCH_MODULE(Branches);

constexpr int kShards = 4;
constexpr std::uint64_t kSteps = 9;

// Steps 1 to 3: all go left, 4 to 6: shards differ, from 7 on all take both.
bool goes_left(std::uint64_t step, int shard) { return step <= 3 || step > 6 || shard % 2 == 0; }
bool goes_right(std::uint64_t step, int shard) { return step > 6 || !goes_left(step, shard); }

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

// Returns the weights' hash.
template <class Options>
std::string train_branches(const std::shared_ptr<comm::Group>& group, Branches model, const Options& options,
                           std::uint64_t until = kSteps) {
  DistributedDataParallel ddp(model, group, {.shards = kShards, .find_unused_parameters = true});
  optim::FusedOptimizer<Options> optimizer(ddp, options);
  while (ddp.steps() < until) {
    const std::uint64_t step = ddp.next_step();
    for (auto& shard : ddp.shards(support::small_batch(step, ddp.local_shards())))
      loss_of(ddp(shard.data, goes_left(step, shard.index), goes_right(step, shard.index)), shard.target).backward();
    optimizer.step();
  }
  return ddp.weights_hash();
}

Branches branches() {
  torch::manual_seed(8);
  return {};
}

template <class Options>
std::string hash_after(int ranks, const Options& options) {
  support::SharedText hash;
  run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
    const std::string mine = train_branches(group, branches(), options);
    if (group->rank() == 0) hash.set(mine);
  });
  return hash.get();
}

TEST(Unused, GiveTheSameBitsOnAnyNumberOfRanks) {
  const optim::AdamOptions options{.lr = 0.01};
  const std::string alone = hash_after(1, options);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(hash_after(ranks, options), alone) << ranks;
}

void expect_close(torch::nn::Module& ours, torch::nn::Module& theirs) {
  const auto named = theirs.named_parameters();
  for (const auto& entry : ours.named_parameters())
    EXPECT_TRUE(torch::allclose(entry.value(), named[entry.key()], 1e-6, 1e-7)) << entry.key();
}

// The plain loop of torch: a parameter without a gradient is left out, its steps do not count.
TEST(Unused, GiveTorchsWeights) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Branches ours = branches(), theirs = branches();
    train_branches(group, ours, optim::AdamOptions{.lr = 0.01});
    torch::optim::Adam adam(theirs->parameters(), torch::optim::AdamOptions(0.01));
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      adam.zero_grad();
      for (int shard = 0; shard < kShards; ++shard) {
        const auto batch = support::small_batch(step, {shard, shard + 1});
        const at::Tensor out = theirs->forward(batch.data, goes_left(step, shard), goes_right(step, shard));
        (loss_of(out, batch.target) / kShards).backward();
      }
      adam.step();
    }
    expect_close(*ours, *theirs);
  });
}

// A rank that is killed and one generation that has another number of ranks go on with the counts that are committed.
TEST(Unused, CountsOfUpdatesOutliveARestart) {
  const optim::AdamOptions options{.lr = 0.01};
  const std::string undisturbed = hash_after(1, options);
  base::Segment segment = base::Segment::create(2);
  const auto run = [&](std::uint64_t until) {
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           const std::string now = train_branches(group, branches(), options, until);
           return until < kSteps || now == undisturbed ? 0 : 7;
         }))
      EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0));
  };
  run(2);
  segment = base::next_generation(std::move(segment), 3);
  run(5);
  segment = base::next_generation(std::move(segment), 1);
  run(kSteps);
}

class Freezing : public testing::TestWithParam<Amp> {};
INSTANTIATE_TEST_SUITE_P(Amp, Freezing, testing::Values(Amp::none, Amp::bf16),
                         [](const auto& info) { return info.param == Amp::bf16 ? "bf16" : "none"; });

void set_frozen(torch::nn::Module& module, bool frozen) {
  for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(!frozen);
}

// fc1 and the statistics' weights are frozen for steps 3 to 5, with an edit in between.
TEST_P(Freezing, KeepsWeightsStateAndCountAndGoesOn) {
  std::vector<std::string> hashes;
  for (const int ranks : {1, 2, 4}) {
    support::SharedText hash;
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      torch::manual_seed(1);
      support::SmallNet model;
      DistributedDataParallel ddp(model, group, {.shards = 4, .amp = GetParam()});
      optim::AdamW optimizer(ddp, {.lr = 0.01});
      at::Tensor before;
      while (ddp.steps() < 8) {
        const std::uint64_t step = ddp.next_step();
        if (step == 3) set_frozen(*model->fc1, true);
        if (step == 4) ddp.modify([] {});
        if (step == 6) set_frozen(*model->fc1, false);
        before = ddp.state_dict().at("fc1.weight").clone();
        for (auto& shard : ddp.shards(support::small_batch(step, ddp.local_shards())))
          loss_of(ddp(shard.data), shard.target).backward();
        optimizer.step({.max_norm = 1});
        EXPECT_EQ(torch::equal(ddp.state_dict().at("fc1.weight"), before), step >= 3 && step < 6) << step;
      }
      if (group->rank() == 0) hash.set(ddp.weights_hash());
    });
    hashes.push_back(hash.get());
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

// Steps 3 to 5 are made with the left branch frozen, in whatever generation they fall; returns the weights' hash.
std::string train_frozen(const std::shared_ptr<comm::Group>& group, std::uint64_t until) {
  Branches model = branches();
  DistributedDataParallel ddp(model, group, {.shards = kShards});
  optim::Adam optimizer(ddp, {.lr = 0.01});
  while (ddp.steps() < until) {
    const std::uint64_t step = ddp.next_step();
    const bool frozen = step >= 3 && step < 6;
    set_frozen(*model->left, frozen);
    const at::Tensor before = model->left->weight.detach().clone();
    for (auto& shard : ddp.shards(support::small_batch(step, ddp.local_shards())))
      loss_of(ddp(shard.data, true, true), shard.target).backward();
    optimizer.step();
    EXPECT_EQ(torch::equal(model->left->weight, before), frozen) << step;
  }
  return ddp.weights_hash();
}

// Frozen at step 3, by another number of ranks from step 4 on, and unfrozen by these at step 6.
TEST(Freezing, OutlivesARestartAndGoesOnFromTheStateBefore) {
  support::SharedText undisturbed;
  run_ranks(RankKind::single, 1, [&](auto group) { undisturbed.set(train_frozen(group, kSteps)); });
  base::Segment segment = base::Segment::create(2);
  const auto run = [&](std::uint64_t until) {
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           const std::string now = train_frozen(group, until);
           return until < kSteps || now == undisturbed.get() ? 0 : 7;
         }))
      EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0));
  };
  run(3);
  segment = base::next_generation(std::move(segment), 3);
  run(4);
  segment = base::next_generation(std::move(segment), 4);
  run(kSteps);
}

TEST(Freezing, GivesTorchsWeights) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Branches ours = branches(), theirs = branches();
    DistributedDataParallel ddp(ours, group);
    optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01});
    torch::optim::SGD plain(theirs->parameters(),
                            torch::optim::SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(0.01));
    set_frozen(*ours->right, true);  // before the first step: its state begins later
    set_frozen(*theirs->right, true);
    for (std::uint64_t step = 1; step <= 8; ++step) {
      for (Branches* model : {&ours, &theirs}) {
        if (step == 4) set_frozen(*(*model)->right, false);
        if (step == 3) set_frozen(*(*model)->left, true);
        if (step == 6) set_frozen(*(*model)->left, false);
      }
      const auto batch = support::small_batch(step, {0, 1});
      loss_of(ddp(batch.data, true, true), batch.target).backward();
      optimizer.step();
      plain.zero_grad();
      loss_of(theirs->forward(batch.data, true, true), batch.target).backward();
      plain.step();
    }
    expect_close(*ours, *theirs);
  });
}

// Rank 0 has none, and would wait for the other.
TEST(Unused, ModifyInMidStepIsRefusedOnRanksWithoutGradientsToo) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Branches model = branches();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    optim::SGD optimizer(ddp);
    if (group->rank() == 1) ddp(torch::ones({2, 20}), true, true).sum().backward();
    EXPECT_THAT(support::what_of([&] { ddp.modify([] {}); }),
                HasSubstr("modify() in the middle of a step: rank 1 has gradients"));
    optimizer.zero_grad();
    ddp.modify([] {});
  });
}

TEST(Freezing, OnOneRankAloneIsRefusedOnAll) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Branches model = branches();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    optim::SGD optimizer(ddp);
    const std::string before = ddp.weights_hash();
    if (group->rank() == 1) set_frozen(*model->left, true);
    const at::Tensor x = torch::ones({2, 20});
    ddp(x, true, true).sum().backward();
    try {
      optimizer.step();
      ADD_FAILURE() << "stepped";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("step 1: parameter 'left.weight' is frozen on some ranks and not on others"));
    }
    EXPECT_EQ(ddp.weights_hash(), before);
    optimizer.zero_grad();
    set_frozen(*model->left, false);
    ddp(x, true, true).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 1u);
  });
}

TEST(Unused, OldGradientsAreNotInTheNorm) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Branches model = branches();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    optim::SGD optimizer(ddp, {.lr = 0});
    const at::Tensor x = torch::ones({2, 20});
    const auto norm_of = [&](bool left, bool right) {
      ddp(x, left, right).sum().backward();
      optimizer.step({.max_norm = 1e9});
      return ddp.last_record().gradient_norm;
    };
    const double left = norm_of(true, false);
    EXPECT_GT(norm_of(true, true), left);
    EXPECT_EQ(norm_of(true, false), left);
  });
}

// A step in which shard 0 has no pass, or passes that were dropped, leaves the module's buffers as they are.
TEST(Unused, AStepWithoutAPassKeepsTheModuleBuffers) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    support::SmallNet model;
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    optim::SGD optimizer(ddp);
    ddp.modify([&] { model->bn->running_mean.fill_(5); });
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({300}, 5.0)));
    const auto batch = support::small_batch(1, {group->rank(), group->rank() + 1});
    loss_of(ddp(batch.data), batch.target).backward();
    optimizer.zero_grad();
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({300}, 5.0)));
    EXPECT_TRUE(torch::equal(model->bn->running_var, torch::ones({300})));
    if (group->rank() == 1) loss_of(ddp(batch.data), batch.target).backward();  // rank 0 has no batch
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({300}, 5.0)));
  });
}

// What is used under no_sync counts when gradients are averaged, as in Python.
TEST(Unused, OnTheClassicPathNoSyncCounts) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Branches model = branches();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    const at::Tensor x = torch::ones({2, 20});
    {
      const auto guard = ddp.no_sync();
      ddp(x, group->rank() == 1, group->rank() == 0).sum().backward();
    }
    ddp(x, true, false).sum().backward();
    const auto all = group->all_gather(model->right->weight.grad());
    EXPECT_TRUE(torch::equal(all[0], all[1]));
    EXPECT_GT(all[0].abs().max().template item<float>(), 0);
  });
}

// Frozen between forward and backward, a parameter is reached and gets nothing.
TEST(Unused, OnTheClassicPathNoGradientIsNone) {
  for (const bool may_be_unused : {true, false})
    run_ranks(RankKind::processes, 2, [&](auto group) {
      Branches model = branches();
      DistributedDataParallel ddp(model, group, {.find_unused_parameters = may_be_unused});
      const at::Tensor loss = ddp(torch::ones({2, 20}), true, true).sum();
      set_frozen(*model->left, true);
      const std::string why = support::what_of([&] { loss.backward(); });
      if (may_be_unused)
        EXPECT_EQ(why, "");
      else
        EXPECT_THAT(why, HasSubstr("parameters 'left.weight', 'left.bias' got no gradient on rank "));
    });
}

// With an optimizer of torch's: zeros of the ranks that do not use it, no gradient where nobody does.
TEST(Unused, OnTheClassicPathAsInPython) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Branches model = branches();
    DistributedDataParallel ddp(model, group, {.find_unused_parameters = true});
    const at::Tensor x = torch::ones({2, 20});
    ddp(x, true, false).sum().backward();
    EXPECT_FALSE(model->right->weight.grad().defined());
    const at::Tensor of_all = model->left->weight.grad().clone();
    EXPECT_GT(of_all.abs().sum().item<float>(), 0);
    model->zero_grad();
    ddp(x, group->rank() == 0, group->rank() == 1).sum().backward();
    EXPECT_TRUE(torch::allclose(model->left->weight.grad(), of_all / 2));
    EXPECT_TRUE(torch::allclose(model->right->weight.grad(), of_all / 2));
    set_frozen(*model->left, true);
    model->zero_grad();
    ddp(x, true, true).sum().backward();
    EXPECT_FALSE(model->left->weight.grad().defined());
    EXPECT_TRUE(torch::allclose(model->right->weight.grad(), of_all));
  });
}

}  // namespace
}  // namespace lockstep
