// The engine over real processes: the same bits whoever computes, and clear errors for every
// broken rule of the fused path.

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include "lockstep/optim/store_choice.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::hash_of;
using support::RankKind;
using support::run_ranks;
using support::SharedText;
using support::small_batch;
using support::SmallJob;
using support::SmallNet;

class SameBits : public testing::TestWithParam<support::OptimizerMaker> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, SameBits, testing::Values(support::small_sgd(), support::small_adam()));

TEST_P(SameBits, ForAnyNumberOfRanks) {
  const SmallJob four{.shards = 4, .optimizer = GetParam()};
  const std::string hash = hash_of(1, four);
  for (int ranks : {2, 3, 4, 2}) EXPECT_EQ(hash_of(ranks, four), hash) << ranks << " ranks";
  const SmallJob six{.shards = 6, .optimizer = GetParam()};
  EXPECT_EQ(hash_of(4, six), hash_of(1, six));
  EXPECT_NE(hash_of(1, six), hash) << "another number of shards must not give the same weights";
}

TEST(Engine, TriesBothKindsOfStoresAndGivesTheSameBits) {
  SmallJob job{.shards = 2, .steps = std::uint64_t(optim::StoreChoice::kFirstTrial) + 2};
  const std::string alone = hash_of(1, job);
  job.after_step = [](Engine& engine) {
    const auto step = int(engine.steps());
    EXPECT_EQ(engine.debug().stores().empty(), step == 0);
    if (step == 0 || step > optim::StoreChoice::kFirstTrial) return;
    const bool streaming = (step - 1) / 4 % 2 == 1;  // four steps with each kind in turn
    EXPECT_EQ(engine.debug().stores(), streaming ? "streaming" : "plain") << step;
  };
  EXPECT_EQ(hash_of(2, job), alone);
}

TEST(Engine, FollowsTorchsOptimizerOnTheWholeBatch) {
  // Without dropout and BatchNorm the mean over shards is the mean over the batch.
  const auto train = [](auto group, bool ours) {
    torch::manual_seed(3);
    torch::nn::Linear model(20, 5);
    DistributedDataParallel ddp(model, group, {.shards = 4});
    std::unique_ptr<torch::optim::Optimizer> theirs;
    std::unique_ptr<optim::Adam> fused;
    if (ours)
      fused = std::make_unique<optim::Adam>(ddp, optim::AdamOptions{.lr = 0.01});
    else
      theirs = std::make_unique<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions(0.01));
    for (std::uint64_t step = 1; step <= 20; ++step) {
      const auto batch = small_batch(step, {0, 4});
      if (ours) {
        for (auto& shard : ddp.shards(batch))
          torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
        fused->step();
      } else {
        theirs->zero_grad();
        torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
        theirs->step();
      }
    }
    return model->weight.detach().clone();
  };
  run_ranks(RankKind::single, 1,
            [&](auto group) { EXPECT_TRUE(torch::allclose(train(group, true), train(group, false), 1e-4, 1e-6)); });
}

TEST(Engine, TheRecordHoldsTheMeanLossOfTheGlobalBatch) {
  SharedText losses;
  const auto record = [&](int ranks) {
    SmallJob job{.shards = 4};
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      std::string text;
      job.after_step = [&](Engine& engine) {
        text += std::to_string(engine.last_record().step) + ":" + std::to_string(engine.last_record().loss) + "/" +
                std::to_string(engine.last_record().samples) + " ";
      };
      run_small_job(group, job);
      if (group->rank() == group->size() - 1) losses.set(text);
    });
    return losses.get();
  };
  const std::string alone = record(1);
  EXPECT_NE(alone.find("6:"), std::string::npos);
  EXPECT_NE(alone.find("/24"), std::string::npos);
  EXPECT_EQ(record(3), alone);
}

TEST(Engine, StartsFromRankZerosWeights) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    torch::manual_seed(std::uint64_t(group->rank()));
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    const auto all = group->all_gather(model->fc1->weight);
    for (const at::Tensor& weight : all) EXPECT_TRUE(torch::equal(weight, all[0]));
  });
}

TEST(Engine, AMissingGradientIsNamedOnEveryRank) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    const std::string before = ddp.weights_hash();
    ddp(torch::randn({4, 20})).sum().backward();
    optimizer.step();
    EXPECT_NE(ddp.weights_hash(), before);
    const std::string after = ddp.weights_hash();
    model->eval();  // leaves the BatchNorm statistics alone
    try {
      ddp.begin_shard(group->rank());
      if (group->rank() == 0) ddp(torch::randn({4, 20})).sum().backward();  // and rank 1 has none
      optimizer.step();
      ADD_FAILURE() << "stepped without gradients";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what())
                    .find("parameters 'fc1.weight', 'fc1.bias', 'bn.weight', 'bn.bias', 'fc2.weight', 'fc2.bias', "
                          "'fc3.weight', 'fc3.bias' got no gradient in shard 1, of rank 1;"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_EQ(ddp.weights_hash(), after) << "the failed step left traces";
  });
}

TEST(Engine, AGradientSetByHandIsRefused) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    ddp(torch::ones({1, 2})).sum().backward();
    EXPECT_FALSE(model->weight.grad().defined());
    model->bias.mutable_grad() = torch::ones({2});
    try {
      optimizer.step();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("somebody set .grad of 'bias'"), std::string::npos) << error.what();
    }
  });
}

TEST(Engine, AGradientFromBeforeIsRefusedToo) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    model->bias.mutable_grad() = torch::ones({2});
    EXPECT_THROW(ddp(torch::ones({1, 2})), Error) << "backward would add to it unseen";
  });
}

TEST(Engine, FrozenParametersAreModifiedForAllAndNotUnfrozenUnseen) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 2);
    model->bias.requires_grad_(false);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    ddp.modify([&] { model->bias.fill_(0.5); });
    EXPECT_TRUE(torch::equal(model->bias, torch::full({2}, 0.5)));
    ddp(torch::ones({1, 2})).sum().backward();
    optimizer.step();
    model->bias.requires_grad_(true);
    const auto step = [&] {  // whoever is second hears of the first one's error
      ddp(torch::ones({1, 2})).sum().backward();
      optimizer.step();
    };
    EXPECT_THROW(step(), Error);
  });
}

TEST(Engine, ASecondBackwardAdds) {
  const auto weight_after = [](int passes, float scale) {
    at::Tensor result;
    run_ranks(RankKind::single, 1, [&](auto group) {
      torch::manual_seed(0);
      torch::nn::Linear model(2, 2);
      DistributedDataParallel ddp(model, group);
      optim::SGD optimizer(ddp, {.lr = 0.5});
      for (int i = 0; i < passes; ++i) (ddp(torch::ones({1, 2})).sum() * scale).backward();
      optimizer.step();
      result = model->weight.detach().clone();
    });
    return result;
  };
  EXPECT_TRUE(torch::equal(weight_after(2, 1), weight_after(1, 2)));
}

TEST(Engine, ClippingFollowsTorchsAndDoesNotDependOnTheRanks) {
  const auto batch = small_batch(1, {0, 4});
  at::Tensor expected;
  double expected_norm = 0;
  {
    torch::manual_seed(3);
    torch::nn::Linear model(20, 5);
    torch::nn::functional::cross_entropy(model(batch.data), batch.target).backward();
    expected_norm = torch::nn::utils::clip_grad_norm_(model->parameters(), 0.01);
    expected = model->weight.detach() - model->weight.grad();
  }
  SharedText hash;
  for (int ranks : {1, 2, 4}) {
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      torch::manual_seed(3);
      torch::nn::Linear model(20, 5);
      DistributedDataParallel ddp(model, group, {.shards = 4});
      optim::SGD optimizer(ddp, {.lr = 1});
      const ShardSpan mine = ddp.local_shards();
      for (auto& shard : ddp.shards(small_batch(1, mine)))
        torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
      optimizer.step({.max_norm = 0.01});
      EXPECT_NEAR(ddp.last_record().gradient_norm, expected_norm, 1e-6);
      EXPECT_TRUE(torch::allclose(model->weight, expected, 1e-5, 1e-7));
      if (ranks == 1) hash.set(ddp.weights_hash());
      EXPECT_EQ(ddp.weights_hash(), hash.get()) << ranks << " ranks";
    });
  }
}

TEST(Engine, ZeroGradForgets) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const at::Tensor before = model->weight.detach().clone();
    (ddp(torch::ones({1, 2})).sum() * 100).backward();
    optimizer.zero_grad();
    EXPECT_THROW(optimizer.step(), Error);
    EXPECT_TRUE(torch::equal(model->weight, before));
  });
}

TEST(Engine, SeveralShardsNeedTheirLoop) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.shards = 2});
    optim::SGD optimizer(ddp);
    EXPECT_THROW(ddp(torch::ones({1, 2})), UsageError);
    EXPECT_THROW((void)ddp.shards(support::SmallBatch{torch::ones({3, 2}), torch::ones({3})}), UsageError);
    const torch::NoGradGuard no_grad;
    EXPECT_NO_THROW(ddp(torch::ones({1, 2}))) << "evaluation needs no shards";
  });
}

TEST(Engine, BackwardOutsideAShardIsRefused) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    EXPECT_THROW(model->forward(torch::ones({1, 2})).sum().backward(), UsageError);
  });
}

TEST(Engine, ModifyChangesEverybodysWeightsInOneCommit) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 3; ++step) {
      ddp(torch::randn({4, 20})).sum().backward();
      optimizer.step();
    }
    ddp.modify([&] {
      model->fc3->bias.fill_(0.25);
      model->bn->running_mean.fill_(2);
    });
    EXPECT_EQ(ddp.steps(), 3u);
    EXPECT_TRUE(torch::equal(model->fc3->bias, torch::full({5}, 0.25)));
    EXPECT_TRUE(torch::equal(model->bn->running_mean, torch::full({300}, 2.0)));
    ddp(torch::randn({4, 20})).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 4u);
  });
}

TEST(EngineDeathTest, AStrayInPlaceEditNamesTheParameter) {
  EXPECT_DEATH(
      {
        run_ranks(RankKind::single, 1, [](auto group) {
          SmallNet model;
          DistributedDataParallel ddp(model, group);
          optim::SGD optimizer(ddp);
          const torch::NoGradGuard no_grad;
          model->fc2->weight.mul_(0.5);
        });
      },
      "parameter 'fc2.weight' was edited in place");
}

TEST(Engine, RefusesEmbeddingsThatEditThemselves) {
  run_ranks(RankKind::single, 1, [](auto group) {
    struct Net : torch::nn::Module {
      torch::nn::Embedding table =
          register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).max_norm(1)));
    };
    try {
      Engine engine(std::make_shared<Net>(), group, {});
      ADD_FAILURE();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("'table': Embedding with max_norm"), std::string::npos) << error.what();
    }
  });
}

TEST(Engine, ModelsTrainedOtherwiseAreNamed) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    const auto refused = [&](const DataParallelOptions& options, bool freeze) {
      torch::nn::Linear model(2, 3);
      model->bias.set_requires_grad(!freeze);
      return support::what_of([&] { const DistributedDataParallel ddp(model, group, options); });
    };
    const bool other = group->rank() == 1;
    EXPECT_NE(refused({}, other).find("'bias' is trained on one of them and frozen on the other"), std::string::npos);
  });
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 3);
    const std::string what = support::what_of(
        [&] { const DistributedDataParallel ddp(model, group, {.find_unused_parameters = group->rank() == 1}); });
    EXPECT_NE(what.find("another find_unused_parameters"), std::string::npos) << what;
  });
}

TEST(Engine, DifferentModelsAreNamed) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, group->rank() == 0 ? 3 : 4);
    try {
      DistributedDataParallel ddp(model, group);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 has another model than rank 0: 'weight'"), std::string::npos)
          << error.what();
    }
  });
}

TEST(Engine, TiedParametersAreOneAndOverlappingOnesRefused) {
  run_ranks(RankKind::single, 1, [](auto group) {
    struct Net : torch::nn::Module {
      explicit Net(bool overlap) {
        a = register_parameter("a", torch::ones({4}));
        b = register_parameter("b", overlap ? a.detach() : a);
      }
      at::Tensor forward(const at::Tensor& x) { return (a * x + b).sum(); }
      at::Tensor a, b;
    };
    auto net = std::make_shared<Net>(false);
    DistributedDataParallel ddp(net, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    ddp(torch::ones({4})).backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(net->a, torch::full({4}, -1.0)));
    EXPECT_TRUE(torch::equal(net->b, net->a));
    EXPECT_THROW(DistributedDataParallel(std::make_shared<Net>(true), group), UsageError);
  });
}

TEST(Engine, AModelHasOneOptimizer) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    EXPECT_THROW(optim::Adam another(ddp), UsageError);
    EXPECT_THROW(DistributedDataParallel(model, group, {.shards = -1}), UsageError);
  });
}

TEST(Engine, AnErrorOfOneRankReachesTheOthersAsItsCause) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    if (group->rank() == 0) {
      group->abort("the disk is full");
      EXPECT_THROW(group->barrier(), GroupAborted);
      return;
    }
    try {
      ddp(torch::randn({4, 20})).sum().backward();
      optimizer.step();
      ADD_FAILURE();
    } catch (const GroupAborted& error) {
      EXPECT_EQ(error.failure().cause, "the disk is full");
      EXPECT_EQ(error.failure().rank, 0);
    }
  });
}

}  // namespace
}  // namespace lockstep::parallel
