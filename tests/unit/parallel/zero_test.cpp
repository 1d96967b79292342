// ZeroRedundancyOptimizer: the weights of the optimizer that it shares out, and a state that comes together again.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/lockstep.h"
#include "lockstep/parallel/zero_redundancy_optimizer.h"
#include "tests/support/ranks.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using Adam = torch::optim::Adam;
using Options = torch::optim::AdamOptions;

// libtorch makes its generator at the first use, behind a guard that ThreadSanitizer does not see in code that it has
// not compiled: here, before ranks are threads.
class GeneratorBeforeThreads : public ::testing::Environment {
  void SetUp() override { torch::rand({1}); }
};
[[maybe_unused]] const auto* const generator_before_threads =
    ::testing::AddGlobalTestEnvironment(new GeneratorBeforeThreads);

torch::nn::Sequential net_of(std::uint64_t seed) {
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
  return net;
}

at::Tensor samples(int rank, int step) {
  return at::randn({5, 6}, at::detail::createCPUGenerator(std::uint64_t(100 * step + rank)));
}

template <class Model>
void train(Model& ddp, torch::optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    ddp(samples(ddp.group().rank(), step)).square().mean().backward();
    optimizer.param_groups()[0].options().set_lr(0.05 / (1 + step));
    optimizer.step();
  }
}

void expect_same_weights(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  for (std::size_t i = 0; i < a->parameters().size(); ++i)
    EXPECT_TRUE(torch::equal(a->parameters()[i], b->parameters()[i])) << i;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Zero, TheLargestGoesToTheRankWithTheLeast) {
  using Owners = std::vector<std::vector<int>>;
  EXPECT_EQ(partition_parameters({{4, 10, 3, 3}}, 2), (Owners{{1, 0, 1, 1}}));
  EXPECT_EQ(partition_parameters({{5}, {5}, {1, 2}}, 2), (Owners{{0}, {1}, {1, 0}})) << "earlier groups count";
  EXPECT_EQ(partition_parameters({{1, 1, 1}}, 3), (Owners{{0, 1, 2}}));
  EXPECT_EQ(partition_parameters({{}}, 2), (Owners{{}}));
}

// Rank r has r + 1 inputs. With the optimizer alone all have in the end the weights of the last rank, which made all
// steps.
TEST(Zero, RanksWithoutInputsUpdateTheirPart) {
  for (int ranks : {2, 3})
    run_ranks(RankKind::processes, ranks, [](auto group) {
      torch::nn::Sequential whole = net_of(3), shared = net_of(3);
      DistributedDataParallel first(whole, group), second(shared, group);
      Adam plain(whole->parameters(), Options(0.05));
      ZeroRedundancyOptimizer<Adam> zero(shared->parameters(), group, Options(0.05));
      first.join([&] { train(first, plain, 0, group->rank() + 1); });
      Join(second, {&zero}).run([&] { train(second, zero, 0, group->rank() + 1); });
      expect_same_weights(shared, whole);
      EXPECT_NE(refusal([&] { second.join([&] { zero.step(); }); }).find("JoinOptions::joinables"), std::string::npos);
    });
}

// As above, with a scaled loss, of which some overflow, clipped, with options that the loop sets.
template <class Model>
void train_scaled(Model& ddp, torch::optim::Optimizer& optimizer, GradScaler& scaler, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const double factor = step == 1 ? std::numeric_limits<double>::infinity() : 1;
    scaler.scale(ddp(samples(ddp.group().rank(), step)).square().mean() * factor).backward();
    scaler.unscale_(optimizer);
    torch::nn::utils::clip_grad_norm_(ddp.module().parameters(), 0.1);
    auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
    options.lr(0.5 / (1 + step)).momentum(0.5 + 0.1 * step).weight_decay(0.01 * step);
    scaler.step(optimizer);
    scaler.update();
  }
}

TEST(Zero, RanksWithoutInputsUpdateByUnscaledAndClippedGradients) {
  for (int ranks : {2, 3})
    run_ranks(RankKind::processes, ranks, [](auto group) {
      using SGD = torch::optim::SGD;
      const auto defaults = torch::optim::SGDOptions(0.5).momentum(0.5);
      torch::nn::Sequential whole = net_of(3), shared = net_of(3);
      DistributedDataParallel first(whole, group), second(shared, group);
      SGD plain(whole->parameters(), defaults);
      ZeroRedundancyOptimizer<SGD> zero(shared->parameters(), group, defaults);
      GradScaler one({.init_scale = 64, .growth_interval = 1}), other({.init_scale = 64, .growth_interval = 1});
      const int steps = 2 * group->rank() + 1;
      first.join([&] { train_scaled(first, plain, one, steps); }, {.scaler = &one});
      Join(second, {&zero}, {.scaler = &other}).run([&] { train_scaled(second, zero, other, steps); });
      expect_same_weights(shared, whole);
      const auto& options = static_cast<torch::optim::SGDOptions&>(zero.param_groups()[0].options());
      EXPECT_NEAR(options.momentum(), 0.5 + 0.2 * (group->size() - 1), 1e-12) << "everybody's, behind it";
    });
}

// A gradient that a rank with inputs does not have is none for a rank without inputs, too.
TEST(Zero, RanksWithoutInputsLeaveAloneWhatIsUnused) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    using SGD = torch::optim::SGD;
    const auto defaults = torch::optim::SGDOptions(0.5).weight_decay(0.1);
    torch::nn::Sequential net = net_of(3);
    DistributedDataParallel ddp(net, group);
    ZeroRedundancyOptimizer<SGD> zero(net->parameters(), group, defaults);
    std::vector<at::Tensor> before;
    Join(ddp, {&zero}).run([&] {
      for (int step = 0; step <= group->rank(); ++step) {
        zero.zero_grad();
        ddp(samples(group->rank(), step)).square().mean().backward();
        if (step == 1)
          for (const at::Tensor& parameter : net->parameters()) before.push_back(parameter.detach().clone());
        if (step == 1) net->zero_grad();
        zero.step();
      }
    });
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(net->parameters()[i], before[i])) << i;
    EXPECT_EQ(before.size(), group->rank() == 0 ? 0u : 4u);
  });
}

TEST(Zero, GivesTheWeightsOfTheWholeOptimizer) {
  for (int ranks : {1, 2, 3})
    run_ranks(RankKind::threads, ranks, [](auto group) {
      torch::nn::Sequential whole = net_of(3), shared = net_of(3);
      DistributedDataParallel first(whole, group), second(shared, group);
      Adam plain(whole->parameters(), Options(0.05));
      ZeroRedundancyOptimizer<Adam> zero(shared->parameters(), group, Options(0.05));
      train(first, plain, 0, 5);
      train(second, zero, 0, 5);
      expect_same_weights(shared, whole);
      EXPECT_LE(zero.optim().state().size(), std::size_t(group->size() == 1 ? 4 : 3));
    });
}

TEST(Zero, GroupsKeepTheirOptionsAndRanksMayHaveNothing) {
  run_ranks(RankKind::threads, 3, [](auto group) {
    torch::nn::Sequential whole(torch::nn::Linear(6, 2)), shared(torch::nn::Linear(6, 2));
    DistributedDataParallel first(whole, group), second(shared, group);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 2; ++i) shared->parameters()[i].copy_(whole->parameters()[i]);
    }
    const auto groups = [](const torch::nn::Sequential& net) {
      std::vector<torch::optim::OptimizerParamGroup> made;
      made.emplace_back(std::vector{net->parameters()[0]});
      made.emplace_back(std::vector{net->parameters()[1]}, std::make_unique<Options>(0.5));
      return made;
    };
    Adam plain(groups(whole), Options(0.05));
    ZeroRedundancyOptimizer<Adam> zero(groups(shared), group, Options(0.05));
    train(first, plain, 0, 3);
    train(second, zero, 0, 3);
    expect_same_weights(shared, whole);
    const std::vector<std::string> kept{"1 of 2 parameters, 12", "1 of 2 parameters, 2", "0 of 2 parameters, 0"};
    const int rank = group->rank();
    EXPECT_EQ(zero.describe(), "rank " + std::to_string(rank) + " of 3 keeps the optimizer state of " +
                                   kept[std::size_t(rank)] + " of 14 elements");
  });
}

// By processes, here and below: libtorch's archives have such guards all over.
TEST(Zero, TheStateComesTogetherAndGoesOn) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Sequential undisturbed = net_of(4), net = net_of(4);
    DistributedDataParallel first(undisturbed, group), second(net, group);
    ZeroRedundancyOptimizer<Adam> all(undisturbed->parameters(), group, Options(0.05));
    train(first, all, 0, 6);
    ZeroRedundancyOptimizer<Adam> before(net->parameters(), group, Options(0.05));
    EXPECT_NE(refusal([&] { before.state_dict(); }).find("call consolidate_state_dict()"), std::string::npos);
    train(second, before, 0, 3);
    before.consolidate_state_dict(1);
    EXPECT_EQ(before.state_dict().state().size(), group->rank() == 1 ? 4u : before.optim().state().size());
    before.consolidate_state_dict();
    std::ostringstream file;
    torch::save(before.state_dict(), file);
    EXPECT_NE(refusal([&] { torch::save(before, file); }).find("each rank has a part"), std::string::npos);

    // Everybody reads what rank 0 has written.
    const auto text = std::make_shared<std::string>(file.str());
    const at::Tensor size = torch::full({1}, std::int64_t(text->size()), at::kLong);
    group->broadcast(size);
    text->resize(std::size_t(size.item<std::int64_t>()));
    group->broadcast(torch::from_blob(text->data(), {std::int64_t(text->size())}, at::kByte));
    std::istringstream in(*text);
    Adam whole(net->parameters(), Options(0.05));
    torch::load(whole, in);
    EXPECT_EQ(whole.state().size(), 4u);
    ZeroRedundancyOptimizer<Adam> after(net->parameters(), group, Options(0.05));
    after.load_state_dict(whole);
    train(second, after, 3, 6);
    expect_same_weights(net, undisturbed);
  });
}

TEST(Zero, TakesTheOptionsOfWhatItLoads) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Sequential net = net_of(4);
    const Adam whole(net->parameters(), Options(0.001).weight_decay(0.25));
    ZeroRedundancyOptimizer<Adam> zero(net->parameters(), group, Options(0.1));
    zero.load_state_dict(whole);
    const auto& options = static_cast<const Options&>(zero.param_groups()[0].options());
    EXPECT_EQ(options.lr(), 0.001);
    EXPECT_EQ(options.weight_decay(), 0.25);
  });
}

// A step behind it changes nothing of what is to be saved.
TEST(Zero, WhatWasConsolidatedStays) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Sequential net = net_of(4);
    DistributedDataParallel ddp(net, group);
    ZeroRedundancyOptimizer<Adam> zero(net->parameters(), group, Options(0.05));
    train(ddp, zero, 0, 2);
    zero.consolidate_state_dict();
    const std::string before = detail::saved_state(zero.state_dict());
    train(ddp, zero, 2, 4);
    EXPECT_EQ(detail::saved_state(zero.state_dict()), before);
  });
}

// Of a fused optimizer the device alone knows which steps found_inf has left out.
TEST(Zero, TellsTheStepsThatAFusedOptimizerHasMade) {
  torch::nn::Sequential net = net_of(4);
  ZeroRedundancyOptimizer<FusedAdam> zero(net->parameters(), std::make_shared<comm::SingleGroup>(), Options(0.05));
  for (const float found_inf : {0.0F, 1.0F}) {
    for (const at::Tensor& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    zero.optim().found_inf = torch::tensor(found_inf);
    zero.step();
  }
  zero.consolidate_state_dict();
  const auto& states = zero.state_dict().state();
  ASSERT_EQ(states.size(), net->parameters().size());
  for (const auto& entry : states) EXPECT_EQ(static_cast<const torch::optim::AdamParamState&>(*entry.second).step(), 1);
}

TEST(Zero, ParametersThatAreAddedAreRefused) {
  run_ranks(RankKind::threads, 2, [](auto group) {
    torch::nn::Sequential net = net_of(4);
    ZeroRedundancyOptimizer<Adam> zero({net->parameters()[0]}, group, Options(0.05));
    torch::optim::Optimizer& base = zero;
    base.add_param_group(torch::optim::OptimizerParamGroup({net->parameters()[1]}));
    EXPECT_NE(refusal([&] { zero.step(); }).find("make it anew with all of them"), std::string::npos);
    EXPECT_NE(refusal([&] { zero.add_param_group(zero.param_groups()[0]); }).find("make it anew"), std::string::npos);
  });
}

TEST(Zero, MixedDtypesAndStrides) {
  run_ranks(RankKind::threads, 2, [](auto group) {
    std::vector<at::Tensor> parameters{torch::ones({3}, at::kDouble), torch::ones({2, 3}).t(), torch::ones({}),
                                       torch::ones({0})};
    for (at::Tensor& parameter : parameters) parameter.requires_grad_().mutable_grad() = torch::ones_like(parameter);
    ZeroRedundancyOptimizer<torch::optim::SGD> zero(parameters, group, torch::optim::SGDOptions(0.5));
    zero.step();
    for (const at::Tensor& parameter : parameters)
      EXPECT_TRUE(torch::equal(parameter, torch::full_like(parameter, 0.5)));
  });
}

TEST(Zero, OfOneOfOursIsThatOptimizer) {
  torch::nn::Sequential plain = net_of(3), named = net_of(3);
  DistributedDataParallel first(plain, std::make_shared<comm::SingleGroup>());
  DistributedDataParallel second(named, std::make_shared<comm::SingleGroup>());
  optim::Adam adam(first, {{"*.bias", {.lr = 0.01}}, {"*"}}, {.lr = 0.05});
  ZeroRedundancyOptimizer<optim::Adam> zero(second, {{"*.bias", {.lr = 0.01}}, {"*"}}, {.lr = 0.05});
  GradScaler one({.init_scale = 64}), other({.init_scale = 64});
  const auto train_by = [](auto& ddp, auto& optimizer, GradScaler& scaler) {
    for (int step = 0; step < 3; ++step) {
      optimizer.set_lr(optim::StepLR{.step_size = 1, .gamma = 0.5}, std::uint64_t(step));
      optimizer.param_groups()[1].options.weight_decay = 0.1 * step;
      scaler.scale(ddp(samples(0, step)).square().mean()).backward();
      EXPECT_TRUE(scaler.step(optimizer, {.max_norm = 1}));
      scaler.update();
    }
    EXPECT_EQ(optimizer.lr(), 0.0025);
  };
  train_by(first, adam, one);
  train_by(second, zero, other);
  zero.consolidate_state_dict();
  EXPECT_EQ(first.weights_hash(), second.weights_hash());
  EXPECT_EQ(zero.describe(),
            "the optimizer state is there once for all ranks of the node, in shared memory; each updates its slice");
}

}  // namespace
}  // namespace lockstep::parallel
