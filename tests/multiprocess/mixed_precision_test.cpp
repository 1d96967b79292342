// bfloat16 and channels-last: the same bits for any number of ranks, float32 masters behind bfloat16 copies.

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep::parallel {
namespace {

using support::hash_of;
using support::RankKind;
using support::run_ranks;
using support::SharedText;
using support::small_batch;
using support::SmallJob;
using support::SmallNet;

const DataParallelOptions kBf16{.amp = Amp::bf16};

class Bf16 : public testing::TestWithParam<support::OptimizerMaker> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, Bf16, testing::Values(support::small_sgd(), support::small_adam()));

TEST_P(Bf16, TheSameBitsForAnyNumberOfRanks) {
  const SmallJob job{.shards = 4, .optimizer = GetParam(), .amp = Amp::bf16};
  const std::string hash = hash_of(1, job);
  for (int ranks : {2, 3, 4}) EXPECT_EQ(hash_of(ranks, job), hash) << ranks << " ranks";
  EXPECT_NE(hash_of(2, {.shards = 4, .optimizer = GetParam()}), hash) << "bf16 must compute otherwise than float32";
}

void train(DistributedDataParallel<SmallNet>& ddp, optim::Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (auto& shard : ddp.shards(small_batch(ddp.next_step(), ddp.local_shards())))
      torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
    optimizer.step();
  }
}

TEST(MixedPrecision, ParametersAreTheRoundedMasters) {
  for (int ranks : {1, 3}) {
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [](auto group) {
      SmallNet model;
      DistributedDataParallel ddp(model, group, kBf16);
      optim::Adam optimizer(ddp, {.lr = 0.01});
      const at::Tensor before = ddp.state_dict().at("fc2.weight").clone();
      for (int steps : {0, 1, 1, 3}) {
        train(ddp, optimizer, steps);
        const auto masters = ddp.state_dict();
        for (const auto& item : model->named_parameters()) {
          const at::Tensor& master = masters.at(item.key());
          ASSERT_EQ(master.scalar_type(), torch::kFloat) << item.key();
          const bool copied = item.key().rfind("fc", 0) == 0;
          ASSERT_EQ(item.value().scalar_type(), copied ? torch::kBFloat16 : torch::kFloat) << item.key();
          EXPECT_TRUE(torch::equal(item.value(), master.to(item.value().scalar_type()))) << item.key();
        }
      }
      EXPECT_FALSE(torch::equal(ddp.state_dict().at("fc2.weight"), before));
    });
  }
}

// The formulas of torch.autocast with float32 parameters and PyTorch's own optimizer.
TEST(MixedPrecision, AutocastEndsWithItsScope) {
  const auto product = [] { return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(); };
  {
    const amp::Autocast outer(Amp::bf16);
    {
      const amp::Autocast inner(Amp::none);
      EXPECT_EQ(product(), at::kFloat);
    }
    EXPECT_EQ(product(), at::kBFloat16);
  }
  EXPECT_EQ(product(), at::kFloat);
}

TEST(MixedPrecision, FollowsAutocastOnFloat32Parameters) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::manual_seed(1);
    torch::nn::Linear ours(20, 5), theirs(20, 5);
    const at::Tensor initial = ours->weight.detach().clone();
    {
      const torch::NoGradGuard no_grad;
      theirs->weight.copy_(ours->weight);
      theirs->bias.copy_(ours->bias);
    }
    DistributedDataParallel ddp(ours, group, kBf16);
    optim::SGD fused(ddp, {.lr = 0.1});
    torch::optim::SGD plain(theirs->parameters(), 0.1);
    for (std::uint64_t step = 1; step <= 30; ++step) {
      const auto batch = small_batch(step, {0, 4});
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data), batch.target);
      loss.backward();
      fused.step();
      plain.zero_grad();
      at::Tensor their_loss;
      {
        const amp::Autocast autocast(Amp::bf16);
        their_loss = torch::nn::functional::cross_entropy(theirs(batch.data).to(torch::kFloat), batch.target);
      }
      their_loss.backward();
      plain.step();
      ASSERT_FLOAT_EQ(loss.item<float>(), their_loss.item<float>()) << "step " << step;
    }
    EXPECT_TRUE(torch::allclose(ddp.state_dict().at("weight"), theirs->weight, 1e-6, 1e-7));
    EXPECT_FALSE(torch::allclose(initial, theirs->weight, 1e-2, 1e-2)) << "nothing was learned";
  });
}

TEST(MixedPrecision, ModifyEditsTheMasters) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, kBf16);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train(ddp, optimizer, 2);
    constexpr float kFine = 0.1234567f;  // no bfloat16
    ddp.modify([&] {
      EXPECT_EQ(model->fc3->bias.scalar_type(), torch::kFloat);
      model->fc3->bias.fill_(kFine);
    });
    EXPECT_TRUE(torch::equal(ddp.state_dict().at("fc3.bias"), torch::full({5}, kFine)));
    EXPECT_TRUE(torch::equal(model->fc3->bias, torch::full({5}, kFine).to(torch::kBFloat16)));
    EXPECT_EQ(model->fc3->bias.scalar_type(), torch::kBFloat16);
    train(ddp, optimizer, 2);
    EXPECT_EQ(ddp.steps(), 4u);
    EXPECT_FALSE(torch::equal(ddp.state_dict().at("fc3.bias"), torch::full({5}, kFine)));
  });
}

TEST(MixedPrecision, AModificationThatThrowsLeavesTheModelAsItWas) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, kBf16);
    optim::SGD optimizer(ddp);
    EXPECT_THROW(ddp.modify([] { throw Error("no"); }), Error);
    EXPECT_EQ(model->fc1->weight.scalar_type(), torch::kBFloat16);
  });
}

TEST(MixedPrecision, TheModuleKeepsTheMastersWhenTheEngineGoes) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    at::Tensor master;
    {
      DistributedDataParallel ddp(model, group, kBf16);
      optim::SGD optimizer(ddp, {.lr = 0.1});
      train(ddp, optimizer, 3);
      master = ddp.state_dict().at("fc2.weight").clone();
    }
    EXPECT_TRUE(torch::equal(model->fc2->weight, master));
  });
}

TEST(MixedPrecision, ResultsAreFloat32AlsoInEvaluation) {
  run_ranks(RankKind::single, 1, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group, kBf16);
    EXPECT_EQ(ddp(torch::ones({2, 20})).scalar_type(), torch::kFloat) << "before an optimizer is there";
    optim::SGD optimizer(ddp);
    model->eval();
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(ddp(torch::ones({2, 20})).scalar_type(), torch::kFloat);
  });
}

TEST(MixedPrecision, FrozenWeightsStayFloat32) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    model->fc1->weight.requires_grad_(false);
    const at::Tensor frozen = model->fc1->weight.detach().clone();
    DistributedDataParallel ddp(model, group, kBf16);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    train(ddp, optimizer, 2);
    EXPECT_EQ(model->fc1->weight.scalar_type(), torch::kFloat);
    EXPECT_EQ(model->fc1->bias.scalar_type(), torch::kBFloat16);
    if (group->rank() == 0) {
      EXPECT_TRUE(torch::equal(model->fc1->weight, frozen));
    }
  });
}

TEST(MixedPrecision, ClippingDoesNotDependOnTheRanks) {
  SharedText hash;
  for (int ranks : {1, 2, 4}) {
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      torch::manual_seed(3);
      SmallNet model;
      DistributedDataParallel ddp(model, group, {.shards = 4, .amp = Amp::bf16});
      optim::SGD optimizer(ddp, {.lr = 1});
      double squares = 0;
      for (auto& shard : ddp.shards(small_batch(1, ddp.local_shards())))
        torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
      const auto before = ddp.state_dict();
      std::map<std::string, at::Tensor> weights;
      for (const auto& [name, tensor] : before) weights.emplace(name, tensor.clone());
      optimizer.step({.max_norm = 1e6});
      for (const auto& item : model->named_parameters()) {
        const at::Tensor change = ddp.state_dict().at(item.key()) - weights.at(item.key());
        squares += change.to(torch::kDouble).square().sum().template item<double>();
      }
      EXPECT_NEAR(ddp.last_record().gradient_norm, std::sqrt(squares), 1e-3 * std::sqrt(squares));
      if (ranks == 1) hash.set(ddp.state().hash());
      EXPECT_EQ(ddp.state().hash(), hash.get()) << ranks << " ranks";
    });
  }
}

// Ties a linear layer to a lookup, and adds a penalty, in forward functions alone.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(bool registered) {
    if (registered) register_parameter("table", fc->weight);
  }
  at::Tensor forward(const at::Tensor& words) {
    rows = torch::nn::functional::embedding(words, fc->weight);
    penalty = fc->weight.square().sum();
    product = fc(rows);
    return product;
  }
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(20, 20));
  at::Tensor rows, penalty, product;
};
TORCH_MODULE(Tied);

TEST(MixedPrecision, WhatForwardReadsBesideItsModulesIsBFloat16UnlessItIsRegisteredThere) {
  for (const bool registered : {false, true})
    run_ranks(RankKind::single, 1, [&](auto group) {
      Tied model(registered);
      DistributedDataParallel ddp(model, group, kBf16);
      optim::SGD optimizer(ddp);
      ddp(torch::tensor({3, 1})).sum().backward();
      const at::ScalarType seen = registered ? torch::kFloat : torch::kBFloat16;
      EXPECT_EQ(model->fc->weight.scalar_type(), seen);
      EXPECT_EQ(model->fc->bias.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(model->rows.scalar_type(), seen);
      EXPECT_EQ(model->penalty.scalar_type(), seen);
      EXPECT_EQ(model->product.scalar_type(), torch::kBFloat16) << "the product is autocast's either way";
      optimizer.step();
    });
}

// Standardises its weight, which autocast computes in float32.
struct StandardisedImpl : torch::nn::Conv2dImpl {
  StandardisedImpl() : Conv2dImpl(torch::nn::Conv2dOptions(3, 4, 3)) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor standard = weight - weight.mean();
    EXPECT_EQ(standard.scalar_type(), torch::kFloat);
    return torch::conv2d(x, standard, bias);
  }
};
TORCH_MODULE(Standardised);

TEST(MixedPrecision, ADerivedLayerKeepsFloat32) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Standardised model;
    DistributedDataParallel ddp(model, group, kBf16);
    optim::SGD optimizer(ddp);
    ddp(torch::randn({2, 3, 8, 8})).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 1u);
  });
}

TEST(MixedPrecisionDeathTest, AStrayInPlaceEditNamesTheParameter) {
  EXPECT_DEATH(run_ranks(RankKind::single, 1,
                         [](auto group) {
                           SmallNet model;
                           DistributedDataParallel ddp(model, group, kBf16);
                           optim::SGD optimizer(ddp);
                           const torch::NoGradGuard no_grad;
                           model->fc2->weight.mul_(0.5);
                         }),
               "parameter 'fc2.weight' was edited in place");
}

struct PictureNetImpl : torch::nn::Module {
  explicit PictureNetImpl(std::int64_t channels)
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 8, 3)))),
        bn(register_module("bn", torch::nn::BatchNorm2d(8))),
        conv2(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3)))),
        fc(register_module("fc", torch::nn::Linear(8 * 4 * 4, 3))) {}
  at::Tensor forward(const at::Tensor& x) {
    input_strides = x.strides().vec();
    return fc(conv2(torch::relu(bn(conv1(x)))).flatten(1));
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn;
  torch::nn::Conv2d conv2;
  torch::nn::Linear fc;
  std::vector<std::int64_t> input_strides;
};
TORCH_MODULE(PictureNet);

std::string train_pictures(const std::shared_ptr<comm::Group>& group, std::int64_t channels,
                           DataParallelOptions options) {
  torch::manual_seed(1);
  PictureNet model(channels);
  options.shards = 4;
  DistributedDataParallel ddp(model, group, options);
  optim::SGD optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
  for (std::uint64_t step = 1; step <= 4; ++step) {
    torch::manual_seed(100 + step);
    const support::SmallBatch all{torch::randn({8, channels, 8, 8}), torch::randint(3, {8}, torch::kLong)};
    const ShardSpan mine = ddp.local_shards();
    const support::SmallBatch batch{all.data.narrow(0, 2 * mine.first, 2 * mine.count()),
                                    all.target.narrow(0, 2 * mine.first, 2 * mine.count())};
    for (auto& shard : ddp.shards(batch))
      torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
    optimizer.step();
  }
  if (options.channels_last) {
    EXPECT_EQ(model->input_strides, (std::vector<std::int64_t>{64 * channels, 1, 8 * channels, channels}));
    EXPECT_EQ(model->conv1->weight.strides().vec(),
              (std::vector<std::int64_t>{9 * channels, 1, 3 * channels, channels}));
  }
  return ddp.weights_hash();
}

TEST(ChannelsLast, TheSameBitsForAnyNumberOfRanks) {
  for (const std::int64_t channels : {1, 3}) {
    for (const Amp amp : {Amp::none, Amp::bf16}) {
      SharedText hash;
      for (const int ranks : {1, 2, 4})
        run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
          const std::string mine = train_pictures(group, channels, {.amp = amp, .channels_last = true});
          if (ranks == 1) hash.set(mine);
          EXPECT_EQ(mine, hash.get()) << ranks << " ranks, " << channels << " channels";
        });
    }
  }
}

TEST(ChannelsLast, ChangesNoInitialWeightAndFollowsTheOtherFormat) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::manual_seed(1);
    PictureNet plain(3);
    torch::manual_seed(1);
    PictureNet last(3);
    DistributedDataParallel ddp(last, group, {.channels_last = true});
    for (const auto& item : plain->named_parameters())
      EXPECT_TRUE(torch::equal(item.value(), last->named_parameters()[item.key()])) << item.key();
    const at::Tensor pictures = torch::randn({2, 3, 8, 8});
    EXPECT_TRUE(torch::allclose(plain(pictures), ddp(pictures), 1e-4, 1e-5));
  });
}

}  // namespace
}  // namespace lockstep::parallel
