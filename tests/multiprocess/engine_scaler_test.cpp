// A scaled loss with the engine: overflows are skipped by all ranks in one commit, and the scale is part of the state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/amp/opt_level.h"
#include "lockstep/base/generation.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::HasSubstr;

constexpr int kScaledShards = 3;
constexpr std::uint64_t kScaledSteps = 9;

bool overflows_at(std::uint64_t step, int shard) {
  return (step == 3 || step == 4 || step == 8) && shard == int(step) % kScaledShards;
}

// Returns the state's hash after `until` steps.
std::string train_scaled(
    const std::shared_ptr<comm::Group>& group, std::uint64_t until = kScaledSteps,
    const std::function<void(parallel::Engine&, GradScaler&)>& after_step = [](auto&, auto&) {}) {
  torch::manual_seed(1);
  support::SmallNet model;
  DistributedDataParallel ddp(model, group, {.shards = kScaledShards});
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  ddp.state().keep("scaler", scaler.kept());
  optim::Adam optimizer(ddp, {.lr = 0.01});
  while (ddp.steps() < until) {
    const std::uint64_t step = ddp.next_step();
    for (auto& shard : ddp.shards(support::small_batch(step, ddp.local_shards()))) {
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(shard.data), shard.target);
      const float factor = overflows_at(step, shard.index) ? std::numeric_limits<float>::infinity() : 1;
      scaler.scale(loss * factor).backward();
      ddp.record(loss.item<double>(), shard.data.size(0));
    }
    scaler.step(optimizer, {.max_norm = step % 2 == 0 ? 1.0 : 0.0});
    scaler.update();
    after_step(ddp, scaler);
  }
  return ddp.state().hash();
}

TEST(Scaler, SkipsAnOverflowOnAllRanksInOneCommit) {
  for (const int ranks : {1, 3})
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [](auto group) {
      std::string before;
      std::vector<double> scales;
      train_scaled(group, kScaledSteps, [&](parallel::Engine& ddp, GradScaler& scaler) {
        const std::uint64_t step = ddp.steps();
        const bool skipped = step == 3 || step == 4 || step == 8;
        EXPECT_EQ(ddp.weights_hash() == before, false) << "module buffers move on";
        EXPECT_EQ(ddp.last_record().skipped, skipped ? 1u : 0u);
        EXPECT_EQ(ddp.last_record().step, step);
        EXPECT_GT(ddp.last_record().loss, 0);
        EXPECT_EQ(scaler.overflowed(), skipped ? "fc1.weight" : "");
        before = ddp.weights_hash();
        scales.push_back(scaler.get_scale());
      });
      EXPECT_EQ(scales, (std::vector<double>{1024, 2048, 1024, 512, 512, 1024, 1024, 512, 512}));
    });
}

TEST(Scaler, KeepsWeightsAndCountsWhereItSkips) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    GradScaler scaler;
    optim::Adam optimizer(ddp, {.lr = 0.1});
    const auto step = [&](float factor) {
      scaler.scale(ddp(torch::full({1, 2}, factor)).sum()).backward();
      const bool updated = scaler.step(optimizer);
      scaler.update();
      return updated;
    };
    const at::Tensor start = model->weight.detach().clone();
    EXPECT_FALSE(step(std::numeric_limits<float>::infinity()));
    EXPECT_TRUE(torch::equal(model->weight, start));
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_TRUE(step(1));
    // Adam's first update is the rate, whatever the gradient: the second's would not be, were the skipped one counted.
    EXPECT_TRUE(torch::allclose(model->weight, start - 0.1, 1e-5, 1e-6));
  });
}

TEST(Scaler, HasTheSameBitsOnAnyNumberOfRanksAndAcrossRestarts) {
  support::SharedText alone;
  run_ranks(RankKind::single, 1, [&](auto group) { alone.set(train_scaled(group)); });
  for (const int ranks : {2, 3})
    run_ranks(RankKind::processes, ranks, [&](auto group) { EXPECT_EQ(train_scaled(group), alone.get()); });
  base::Segment segment = base::Segment::create(2);
  const auto run = [&](std::uint64_t until) {
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           const std::string now = train_scaled(group, until);
           return until < kScaledSteps || now == alone.get() ? 0 : 7;
         }))
      EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0));
  };
  run(3);
  segment = base::next_generation(std::move(segment), 3);
  run(6);
  segment = base::next_generation(std::move(segment), 1);
  run(kScaledSteps);
}

TEST(Scaler, OfRanksThatDisagreeIsRefusedByAll) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    GradScaler scaler({.init_scale = group->rank() == 0 ? 2.0 : 4.0});
    scaler.scale(ddp(torch::ones({1, 2})).sum()).backward();
    EXPECT_THAT(support::what_of([&] { scaler.step(optimizer); }), HasSubstr("or loss scales"));
    EXPECT_EQ(ddp.steps(), 0u);
  });
}

// A loss of the generator that was scaled before the discriminator's step is divided by the scale that it was scaled
// by.
TEST(Scaler, StandsStillOverTheStepsOfSeveralModels) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear first(2, 1), second(2, 1);
    DistributedDataParallel d(first, group, {.name = "d"}), g(second, group, {.name = "g"});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 1});
    g.state().keep("scaler", scaler.kept());
    optim::SGD of_d(d, {.lr = 1}), of_g(g, {.lr = 1});
    const auto step = [&](float factor_of_d, float factor_of_g) {
      const at::Tensor before = second->weight.detach().clone();
      const at::Tensor ones = torch::ones({1, 2});
      scaler.scale((d(ones) * factor_of_d).sum()).backward();
      scaler.scale((g(ones) * factor_of_g).sum()).backward();
      const double scale = scaler.get_scale();
      EXPECT_EQ(scaler.step(of_d), std::isfinite(factor_of_d));
      EXPECT_EQ(scaler.get_scale(), scale);
      EXPECT_EQ(scaler.step(of_g), std::isfinite(factor_of_g));
      const auto moved = (before - second->weight.detach()).max().template item<float>();
      EXPECT_FLOAT_EQ(moved, std::isfinite(factor_of_g) ? factor_of_g : 0);
      EXPECT_EQ(scaler.overflowed(), std::isfinite(factor_of_d + factor_of_g) ? "" : "weight");
      const double committed = scaler.state_dict().scale;  // with the step of the last one
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), committed);
      return committed;
    };
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(step(1, 2), 2048);
    EXPECT_EQ(step(infinity, 3), 1024);
    EXPECT_EQ(step(1, infinity), 512);
    EXPECT_EQ(step(1, 4), 1024);
    scaler.scale(g(torch::ones({1, 2})).sum()).backward();
    EXPECT_TRUE(scaler.step(of_g));
    EXPECT_THAT(support::what_of([&] { scaler.step(of_g); }), HasSubstr("again before update()"));
  });
}

// What float16 loses without a scale comes through with one.
TEST(Scaler, BringsSmallGradientsThroughFloat16) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(4, 4);
    const at::Tensor start = model->weight.detach().clone();
    DistributedDataParallel ddp(model, group, {.amp = Amp::fp16});
    optim::SGD optimizer(ddp, {.lr = 1e6});
    const auto moved = [&](bool enabled) {
      GradScaler scaler({.enabled = enabled});
      const at::Tensor before = model->weight.detach().clone();
      const at::Tensor out = ddp(torch::ones({1, 4}));
      EXPECT_EQ(out.scalar_type(), torch::kFloat);
      scaler.scale((out * 1e-9).sum()).backward();
      EXPECT_TRUE(scaler.step(optimizer));
      return (model->weight - before).abs().max().template item<float>();
    };
    EXPECT_EQ(moved(false), 0);
    EXPECT_NEAR(moved(true), 1e-3, 1e-4);
  });
}

// All in float16: weights that only an optimizer of torch::optim takes, averaged over the ranks.
TEST(OptLevel, O3TrainsWithAnOptimizerOfTorchs) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(4, 16), torch::nn::ReLU(), torch::nn::Linear(16, 1));
    const amp::Precision precision = amp::initialize(*net, "O3");
    DistributedDataParallel ddp(net, group, {.amp = precision.amp});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    GradScaler scaler(precision.scaler);
    std::vector<float> losses;
    for (int i = 0; i < 20; ++i) {
      torch::manual_seed(10 * i + group->rank());
      const at::Tensor input = torch::randn({8, 4}).to(at::kHalf);
      optimizer.zero_grad();
      const at::Tensor loss = (ddp(input) - input.sum(1, true)).square().mean();
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      losses.push_back(loss.template item<float>());
    }
    EXPECT_LT(losses.back(), losses.front() / 2);
    const at::Tensor weight = net->parameters()[0].detach().to(at::kFloat);
    EXPECT_EQ(net->parameters()[0].scalar_type(), at::kHalf);
    const at::Tensor of_rank_0 = weight.clone();
    group->broadcast(of_rank_0);
    EXPECT_TRUE(torch::equal(weight, of_rank_0));
  });
}

}  // namespace
}  // namespace lockstep
