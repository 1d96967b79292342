// Several passes of a shard within one step: random numbers, records, module buffers, zero_grad(), and backward passes
// that end by an exception.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cmath>

#include "lockstep/memory/caching_allocator.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SharedText;
using support::small_batch;
using support::SmallBatch;
using support::SmallNet;
using support::what_of;

RankKind kind_of(int ranks) { return ranks == 1 ? RankKind::single : RankKind::processes; }

// ---- zero_grad()

std::string hash_of_order(bool zero_between) {
  SharedText result;
  run_ranks(RankKind::processes, 2, [&](auto group) {
    torch::manual_seed(1);
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.seed = 5});
    optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
    for (std::uint64_t step = 1; step <= 4; ++step) {
      const SmallBatch batch = small_batch(step, ddp.local_shards());
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      ddp.record(loss.item<double>(), batch.data.size(0));
      if (zero_between) optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      EXPECT_EQ(ddp.last_record().samples, 12);
    }
    if (group->rank() == 1) result.set(ddp.state().hash());
  });
  return result.get();
}

TEST(ZeroGrad, BetweenForwardAndBackwardAsInTorchsImageNetExample) {
  EXPECT_EQ(hash_of_order(true), hash_of_order(false));
}

TEST(ZeroGrad, DropsTheRecordsOfThePassesWhoseGradientsItDrops) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp(torch::ones({1, 2})).sum().backward();
    ddp.record(100, 1);
    optimizer.zero_grad();
    ddp.record(8, 4);  // of the pass whose gradients are gone: it counts, as nobody has dropped it yet
    optimizer.zero_grad();
    const at::Tensor sum = ddp(torch::ones({1, 2})).sum();
    ddp.record(3, 2);
    optimizer.zero_grad();
    sum.backward();
    optimizer.step();
    EXPECT_EQ(ddp.last_record().loss, 3);
    EXPECT_EQ(ddp.last_record().samples, 2);
  });
}

// The next batch starts where the one before would have, however the dropped one ended.
TEST(ZeroGrad, ADroppedBatchLeavesNothingInTheModuleBuffers) {
  const auto mean_after = [](bool drop) {
    at::Tensor mean;
    run_ranks(RankKind::single, 1, [&](auto group) {
      torch::manual_seed(1);
      SmallNet model;
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp, {.lr = 0.05});
      const auto backward = [&](const at::Tensor& data) { ddp(data).sum().backward(); };
      if (drop) {
        backward(torch::full({4, 20}, std::nan("")));
        EXPECT_THAT(what_of([&] { optimizer.step({.error_if_nonfinite = true}); }), testing::HasSubstr("step 1"));
        optimizer.zero_grad();
        EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::zeros({300}))) << "evaluation sees the committed ones";
        backward(torch::ones({4, 20}));
        optimizer.zero_grad();
      }
      backward(torch::arange(80).view({4, 20}).to(torch::kFloat));
      optimizer.step();
      mean = model->bn->running_mean.clone();
    });
    return mean;
  };
  EXPECT_TRUE(torch::equal(mean_after(true), mean_after(false)));
}

TEST(ZeroGrad, ClearsAGradientSetByHand) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    model->bias.mutable_grad() = torch::ones({2});
    optimizer.zero_grad();
    EXPECT_FALSE(model->bias.grad().defined());
    ddp(torch::ones({1, 2})).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 1u);
  });
}

// ---- passes

struct MasksImpl : torch::nn::Module {
  MasksImpl()
      : weight(register_parameter("weight", torch::ones({1000}))),
        dropout(register_module("dropout", torch::nn::Dropout(0.5))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor result = dropout(x * weight);
    masks.push_back(result.detach() != 0);
    return result;
  }
  at::Tensor weight;
  torch::nn::Dropout dropout;
  std::vector<at::Tensor> masks;
};
TORCH_MODULE(Masks);

TEST(Passes, DrawRandomNumbersOfTheirOwn) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Masks model;
    DistributedDataParallel ddp(model, group, {.shards = 2, .seed = 7});
    optim::SGD optimizer(ddp);
    const SmallBatch batch{torch::ones({2, 1000}), torch::zeros({2})};
    for (int pass = 0; pass < 2; ++pass)
      for (auto& shard : ddp.shards(batch)) ddp(shard.data).sum().backward();
    optimizer.step();
    const auto& masks = model->masks;
    ASSERT_EQ(masks.size(), 4u);
    for (std::size_t i = 0; i < masks.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(torch::equal(masks[i], masks[j])) << i << " and " << j;
    for (int shard = 0; shard < 2; ++shard) {
      torch::manual_seed(shard_seed(7, 1, shard));
      EXPECT_TRUE(torch::equal(masks[std::size_t(shard)], torch::dropout(torch::ones({1, 1000}), 0.5, true) != 0));
    }
  });
}

// Two passes per step, by two loops or by two plain calls.
std::string hash_of_two_passes(int ranks, bool loops) {
  SharedText result;
  run_ranks(kind_of(ranks), ranks, [&](auto group) {
    torch::manual_seed(1);
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.shards = 2, .seed = 5});
    optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
    const auto pass = [&](const SmallBatch& part) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(part.data), part.target);
      loss.backward();
      ddp.record(loss.item<double>(), part.data.size(0));
    };
    for (std::uint64_t step = 1; step <= 3; ++step)
      for (std::uint64_t half = 0; half < 2; ++half) {
        const SmallBatch batch = small_batch(2 * step + half, ddp.local_shards(), half == 0 ? 6 : 3);
        if (loops)
          for (auto& shard : ddp.shards(batch)) pass({shard.data, shard.target});
        else
          pass(batch);
        if (half == 1) optimizer.step();
      }
    EXPECT_EQ(ddp.last_record().samples, 18);
    if (group->rank() == 0) result.set(ddp.state().hash());
  });
  return result.get();
}

TEST(Passes, GiveTheSameBitsByLoopsAndByPlainCallsOnAnyNumberOfRanks) {
  const std::string hash = hash_of_two_passes(1, true);
  EXPECT_EQ(hash_of_two_passes(2, true), hash);
  EXPECT_EQ(hash_of_two_passes(2, false), hash);
}

TEST(Passes, RecordsAddUpBySamples) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.shards = 2});
    optim::SGD optimizer(ddp);
    const double losses[2][2] = {{1, 2}, {5, 10}};  // by pass and shard
    const std::int64_t samples[2][2] = {{6, 6}, {2, 4}};
    for (int pass = 0; pass < 2; ++pass)
      for (auto& shard : ddp.shards(SmallBatch{torch::ones({2, 2}), torch::ones({2})})) {
        ddp(shard.data).sum().backward();
        ddp.record(losses[pass][shard.index], samples[pass][shard.index]);
      }
    optimizer.step();
    EXPECT_EQ(ddp.last_record().samples, 18);
    EXPECT_NEAR(ddp.last_record().loss, (1 * 6 + 2 * 6 + 5 * 2 + 10 * 4) / 18.0, 1e-12);
    for (auto& shard : ddp.shards(SmallBatch{torch::ones({2, 2}), torch::ones({2})})) ddp(shard.data).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.last_record().samples, 0) << "the records of the step before";
    EXPECT_TRUE(std::isnan(ddp.last_record().loss)) << "none was recorded";
  });
}

TEST(Passes, EachShardCarriesItsModuleBuffers) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.shards = 2});
    optim::SGD optimizer(ddp);
    torch::nn::BatchNorm1d expected[2] = {torch::nn::BatchNorm1d(300), torch::nn::BatchNorm1d(300)};
    for (std::uint64_t pass = 0; pass < 2; ++pass)
      for (auto& shard : ddp.shards(small_batch(1 + pass, {0, 2}))) {
        auto& plain = expected[shard.index];
        EXPECT_TRUE(torch::equal(model->bn->running_mean, plain->running_mean)) << pass << ' ' << shard.index;
        EXPECT_EQ(model->bn->num_batches_tracked.template item<std::int64_t>(), std::int64_t(pass));
        plain(model->fc1(shard.data).detach());
        ddp(shard.data).sum().backward();
        EXPECT_TRUE(torch::equal(model->bn->running_var, plain->running_var)) << pass << ' ' << shard.index;
      }
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->bn->running_mean, expected[0]->running_mean)) << "shard 0's last are the state's";
    EXPECT_EQ(model->bn->num_batches_tracked.template item<std::int64_t>(), 2);
  });
}

// ---- backward passes that throw

struct ChainImpl : torch::nn::Module {
  at::Tensor first = register_parameter("first", torch::ones({2}));
  at::Tensor last = register_parameter("last", torch::ones({2}));
  std::function<void()> between = [] {};  // runs when `last` has its gradient and `first` has none
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor middle = x * first;
    middle.register_hook([this](const at::Tensor& gradient) {
      between();
      return gradient;
    });
    return (middle * last).sum();
  }
};
TORCH_MODULE(Chain);

void fail() { throw std::runtime_error("mine"); }

TEST(UnfinishedBackward, PoisonsTheStepUntilZeroGrad) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Chain model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const auto backward = [&] { ddp(torch::ones({2})).backward(); };
    model->between = fail;
    EXPECT_THROW(backward(), std::runtime_error);
    model->between = [] {};
    EXPECT_THAT(what_of(backward), testing::HasSubstr("ended by an exception"));
    EXPECT_THAT(what_of([&] { optimizer.step(); }), testing::HasSubstr("ended by an exception"));
    EXPECT_THAT(what_of([&] { optimizer.step(); }), testing::HasSubstr("zero_grad()")) << "until zero_grad()";
    const at::Tensor loss = ddp(torch::ones({2}));  // the order of PyTorch's ImageNet example
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->last, torch::zeros({2}))) << model->last;
    EXPECT_TRUE(torch::equal(model->first, torch::zeros({2}))) << model->first;
  });
}

TEST(UnfinishedBackward, OneWithinAnotherMayFinish) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Chain model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    model->between = [&] {
      const torch::AutoGradMode with_gradients(true);
      (model->last * 3).sum().backward();
    };
    for (int step = 1; step <= 2; ++step) {
      ddp(torch::ones({2})).backward();
      optimizer.step();
    }
    // 1 - (1 + 3), then -3 - (0 + 3): first was 0 after the first step.
    EXPECT_TRUE(torch::equal(model->last, torch::full({2}, -6.0))) << model->last;
  });
}

TEST(UnfinishedBackward, OneWithinAnotherThatThrewPoisonsToo) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Chain model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const at::Tensor other = torch::ones({2}).requires_grad_();
    other.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("inner"); });
    model->between = [&] {
      const torch::AutoGradMode with_gradients(true);
      EXPECT_THROW(((other * 1) * model->last).sum().backward(), std::runtime_error);
    };
    ddp(torch::ones({2})).backward();
    EXPECT_THAT(what_of([&] { optimizer.step(); }), testing::HasSubstr("ended by an exception"));
    EXPECT_EQ(ddp.steps(), 0u);
  });
}

TEST(UnfinishedBackward, OneThatReachesNoParameterOfOursIsNotOurs) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Chain model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const at::Tensor other = torch::ones({2}).requires_grad_();
    other.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("other"); });
    EXPECT_THROW(other.sum().backward(), std::runtime_error);
    ddp(torch::ones({2})).backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->last, torch::zeros({2})));
  });
}

// ---- second derivatives

// The gradient penalty of WGAN-GP, with a graph of the gradients themselves, twice a step.
TEST(DoubleBackward, MovesTheWeightsAsTorchsAndKeepsNoMemory) {
  memory::use_caching_allocator();
  if (!memory::uses_caching_allocator()) GTEST_SKIP() << "LOCKSTEP_ALLOCATOR=system: nobody counts";
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::manual_seed(2);
    torch::nn::Sequential ours(torch::nn::Linear(20, 300), torch::nn::Tanh(), torch::nn::Linear(300, 1));
    const auto theirs = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(ours->clone());
    const auto penalty = [](auto&& forward, const at::Tensor& x) {
      const at::Tensor y = forward(x);
      const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
      return y.mean() + 10 * (slope.norm(2, 1) - 1).square().mean();
    };
    DistributedDataParallel ddp(ours, group);
    optim::SGD optimizer(ddp, {.lr = 0.01});
    const at::Tensor data = torch::randn({16, 20}).requires_grad_();
    std::int64_t after_two = 0;
    for (int step = 1; step <= 8; ++step) {
      for (int i = 0; i < 2; ++i) {
        penalty([&](const at::Tensor& x) { return ddp(x); }, data).backward({}, /*keep_graph=*/true, true);
        data.mutable_grad().reset();  // the user's own cycle of a tensor, its gradient and that one's graph
      }
      optimizer.step();
      {
        at::Tensor loss = penalty([&](const at::Tensor& x) { return theirs->forward(x); }, data) * 2;
        const auto gradients = torch::autograd::grad({loss}, theirs->parameters());
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < gradients.size(); ++i) theirs->parameters()[i].sub_(gradients[i] * 0.01);
      }
      const std::int64_t in_use = memory::memory_stats().bytes_in_use;
      if (step == 2) after_two = in_use;
      if (step > 2) {
        EXPECT_EQ(in_use, after_two) << "after step " << step;
      }
    }
    for (std::size_t i = 0; i < ours->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(ours->parameters()[i], theirs->parameters()[i], 1e-4, 1e-5)) << i;
  });
}

// ---- gradients of one layer that is used in several ways

TEST(Gradients, HooksOnTheWeightSeeThem) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(4, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    at::Tensor seen;
    model->weight.register_hook([&](const at::Tensor& gradient) { seen = gradient.clone(); });
    const at::Tensor before = model->weight.detach().clone();
    ddp(torch::ones({3, 4})).sum().backward();
    optimizer.step();
    ASSERT_TRUE(seen.defined());
    EXPECT_TRUE(torch::equal(model->weight, before - seen));
  });
}

TEST(Gradients, GoToTheModuleWhenTheGraphOutlivesItsEngine) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(4, 2);
    at::Tensor loss;
    {
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp);
      loss = ddp(torch::ones({3, 4})).sum();
    }
    loss.backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({2, 4}, 3.0)));
  });
}

}  // namespace
}  // namespace lockstep::parallel
