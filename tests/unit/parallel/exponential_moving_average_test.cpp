// The average of the weights where an optimizer of torch::optim trains.

#include "lockstep/parallel/exponential_moving_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::what_of;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

// Its second layer is frozen.
struct AveragedNetImpl : torch::nn::Module {
  AveragedNetImpl() {
    for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return last(frozen(torch::relu(bn(first(x))))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::BatchNorm1d bn = register_module("bn", torch::nn::BatchNorm1d(8));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(8, 8));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(8, 2));
};
TORCH_MODULE(AveragedNet);

Tensors cloned(const Tensors& tensors) {
  Tensors clones;
  for (const auto& [name, tensor] : tensors) clones.emplace(name, tensor.clone());
  return clones;
}

at::Tensor input(int step, int rank) {
  return torch::arange(24, at::kFloat).reshape({6, 4}).add(step + 7 * rank).sin();
}

// Six steps; `after_step()` of what `make(ddp, model)` returns.
template <class Make>
Tensors trained(const std::shared_ptr<comm::Group>& group, const DataParallelOptions& options, Make&& make) {
  torch::manual_seed(3);
  AveragedNet model;
  DistributedDataParallel ddp(model, group, options);
  const auto [step, average] = make(ddp, model);
  for (int i = 0; i < 6; ++i) {
    ddp(input(i, group->rank())).square().mean().backward();
    step();
  }
  return cloned(average());
}

Tensors of_torch(const std::shared_ptr<comm::Group>& group, const EmaOptions& ema) {
  return trained(group, {}, [&](auto&, AveragedNet& model) {
    auto sgd = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    auto averages = std::make_shared<ExponentialMovingAverage>(*model, ema);
    return std::pair(
        [=] {
          sgd->step();
          averages->update_parameters();
          sgd->zero_grad();
        },
        [=] { return averages->state_dict(); });
  });
}

Tensors of_ours(const std::shared_ptr<comm::Group>& group, const EmaOptions& ema) {
  return trained(group, {.ema = ema}, [&](auto& ddp, AveragedNet&) {
    auto sgd = std::make_shared<optim::SGD>(ddp, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    return std::pair([=] { sgd->step(); }, [&ddp] { return ddp.ema().state_dict(); });
  });
}

static_assert(!std::is_copy_constructible_v<ExponentialMovingAverage> &&
              !std::is_move_constructible_v<ExponentialMovingAverage>);

TEST(ExponentialMovingAverage, HasTheNumbersOfOptimizersOfOurs) {
  for (const EmaOptions& ema : {EmaOptions{.decay = 0.9}, EmaOptions{.decay = 0.8, .interval = 2, .use_buffers = false},
                                EmaOptions{.decay = 0.9, .warmup_steps = 2, .steps_per_epoch = 3}})
    for (const int ranks : {1, 2})
      run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](const auto& group) {
        const Tensors classic = of_torch(group, ema), fused = of_ours(group, ema);
        ASSERT_EQ(classic.size(), fused.size());
        for (const auto& [name, average] : classic) {
          if (group->rank() > 0 && name.starts_with("bn.running")) continue;  // each rank's own
          const at::Tensor& expected = fused.at(name);
          EXPECT_TRUE(ranks == 1 ? torch::equal(average, expected) : torch::allclose(average, expected, 1e-6, 1e-7))
              << name << " " << (average - expected).abs().max();
        }
      });
}

// A GAN freezes the one while it trains the other.
TEST(ExponentialMovingAverage, GoesOnForWhatIsFrozenForAWhile) {
  torch::nn::Linear net(1, 1);
  const auto set = [&](float value) {
    const torch::NoGradGuard no_grad;
    net->weight.fill_(value);
  };
  set(0);
  ExponentialMovingAverage average(*net, {.decay = 0.5});
  average.update_parameters();
  net->weight.set_requires_grad(false);
  set(1);
  average.update_parameters();
  EXPECT_EQ(average.state_dict().at("weight").item<float>(), 0.5f);
}

// A forgotten eval(), and a step.
TEST(ExponentialMovingAverage, WhatIsDoneToTheModelWhileItIsShownIsDropped) {
  AveragedNet model;
  ExponentialMovingAverage average(*model, {.decay = 0.5});
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  const auto step = [&](int number) {
    model->forward(input(number, 0)).square().mean().backward();
    sgd.step();
  };
  step(0);
  average.update_parameters();
  step(1);
  const Tensors averages = cloned(average.state_dict());
  const at::Tensor weights = model->first->weight.clone(), mean = model->bn->running_mean.clone();
  {
    const auto shown = average.use();
    step(2);
    EXPECT_FALSE(torch::equal(model->first->weight, averages.at("first.weight")));
  }
  for (const auto& [name, tensor] : average.state_dict()) EXPECT_TRUE(torch::equal(tensor, averages.at(name))) << name;
  EXPECT_TRUE(torch::equal(model->first->weight, weights) && torch::equal(model->bn->running_mean, mean));
}

TEST(ExponentialMovingAverage, IsShownGoesOnAndIsRefused) {
  AveragedNet model;
  ExponentialMovingAverage average(*model, {.decay = 0.5});
  average.update_parameters();
  const auto train = [&](double by) {
    const torch::NoGradGuard no_grad;
    model->first->weight.add_(by);
    model->bn->running_mean.add_(by);
    average.update_parameters();
  };
  train(1);
  const at::Tensor weights = model->first->weight.clone();
  {
    const auto shown = average.use();
    EXPECT_TRUE(torch::allclose(model->first->weight, weights - 0.5));
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({8}, 0.5)));
    EXPECT_THAT(what_of([&] { average.update_parameters(); }), HasSubstr("shows its averaged weights"));
    EXPECT_THAT(what_of([&] { auto twice = average.use(); }), HasSubstr("shows its averaged weights already"));
  }
  EXPECT_TRUE(torch::equal(model->first->weight, weights));
  EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::ones({8})));

  ExponentialMovingAverage resumed(*model, {.decay = 0.5});
  Tensors saved = cloned(average.state_dict());
  resumed.load_state_dict(saved, average.updates());
  train(2);
  resumed.update_parameters();
  EXPECT_EQ(resumed.updates(), 3u);
  for (const auto& [name, tensor] : average.state_dict())
    EXPECT_TRUE(torch::equal(tensor, resumed.state_dict().at(name))) << name;
  saved["last.bias"] = torch::ones({3});
  EXPECT_THAT(what_of([&] { resumed.load_state_dict(saved, 1); }), HasSubstr("another shape of 'last.bias'"));
  saved.erase("first.weight");
  EXPECT_THAT(what_of([&] { resumed.load_state_dict(saved, 1); }), HasSubstr("has no 'first.weight'"));
  EXPECT_THAT(what_of([&] { ExponentialMovingAverage(*model, {.decay = 2}); }), HasSubstr("must be in [0, 1]"));
}

}  // namespace
}  // namespace lockstep::parallel
