// The classic path: somebody else's optimizer, gradients averaged in buckets during backward.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/functional/loss.h>

#include "lockstep/parallel/gradient_buckets.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::small_batch;
using support::SmallNet;

TEST(ClassicPath, GradIsTheMeanOverTheRanks) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    torch::manual_seed(0);
    SmallNet model;
    model->eval();  // no dropout, no BatchNorm statistics: gradients are comparable
    DistributedDataParallel ddp(model, group);
    const auto gradient = [&](int rank) {
      return torch::autograd::grad(
          {torch::nn::functional::cross_entropy(model->forward(small_batch(1, {rank, rank + 1}).data),
                                                small_batch(1, {rank, rank + 1}).target)},
          {model->fc2->weight})[0];
    };
    at::Tensor expected = (gradient(0) + gradient(1) + gradient(2)) / 3;
    const auto mine = small_batch(1, {group->rank(), group->rank() + 1});
    torch::nn::functional::cross_entropy(ddp(mine.data), mine.target).backward();
    EXPECT_TRUE(torch::allclose(model->fc2->weight.grad(), expected, 1e-5, 1e-7));
  });
}

TEST(ClassicPath, NoSyncKeepsGradientsLocalAndAddsUp) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    const at::Tensor x = torch::full({1, 2}, float(group->rank() + 1));
    {
      const auto guard = ddp.no_sync();
      ddp(x).sum().backward();
      EXPECT_TRUE(torch::equal(model->weight.grad(), x));
    }
    ddp(x).sum().backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 3.0)));
  });
}

TEST(ClassicPath, UnusedParametersAndTheirRankAreNamed) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    try {
      model->only_head = group->rank() == 1;
      ddp(torch::ones({2, 20})).sum().backward();
      ADD_FAILURE();
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what())
                    .find("parameters 'fc1.weight', 'fc1.bias', 'bn.weight', 'bn.bias', 'fc2.weight', 'fc2.bias' got "
                          "no gradient on rank 1,"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(ClassicPath, ABackwardThatThrewIsForgotten) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    const at::Tensor x = torch::full({1, 2}, float(group->rank() + 1));
    const auto failing =
        model->weight.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); });
    EXPECT_THROW(ddp(x).sum().backward(), std::runtime_error);
    model->weight.remove_hook(failing);
    model->zero_grad();
    ddp(x).sum().backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 1.5)));
  });
}

TEST(ClassicPath, EveryForwardStartsFromRankZerosBuffers) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    model->bn->running_mean.fill_(float(group->rank()));
    model->bn->running_var.fill_(1);
    ddp(torch::zeros({4, 20}));
    const auto all = group->all_gather(model->bn->running_mean);
    EXPECT_TRUE(torch::allclose(all[0], all[1]));
  });
}

// As PyTorch: the first forward behind a step brings them, in any mode, and those behind it need not be made by all.
TEST(ClassicPath, TheFirstForwardOfAnEvaluationBringsRankZerosBuffers) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    const at::Tensor& mean = model->bn->running_mean;
    const auto spoil = [&] { mean.fill_(float(group->rank())); };
    const auto is_rank_zeros = [&] { return mean.max().template item<float>() == 0; };
    const at::Tensor x = torch::zeros({4, 20});
    for (const bool prepared : {false, true}) {
      model->train();
      ddp(x).sum().backward();
      spoil();
      if (prepared) ddp.begin_evaluation();
      model->eval();
      const torch::NoGradGuard no_grad;
      if (!prepared) ddp(x);
      EXPECT_TRUE(is_rank_zeros());
      spoil();
      for (int i = 0; i < group->rank(); ++i) ddp(x);
      EXPECT_EQ(is_rank_zeros(), group->rank() == 0);
    }
    ddp(x).sum().backward();  // the one behind an evaluation brings nothing, either
    EXPECT_EQ(is_rank_zeros(), group->rank() == 0);
    ddp(x);
    EXPECT_TRUE(is_rank_zeros()) << "with gradients, in evaluation mode";
  });
}

// As PyTorch: the forward decides.
TEST(ClassicPath, NoSyncIsDecidedByTheForward) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, group);
    const at::Tensor x = torch::full({1, 2}, float(group->rank() + 1));
    const auto local_forward = [&] {
      const auto guard = ddp.no_sync();
      return ddp(x).sum();
    };
    local_forward().backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), x));
    model->zero_grad();
    const at::Tensor loss = ddp(x).sum();
    {
      const auto guard = ddp.no_sync();
      loss.backward();
    }
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 1.5)));
    model->zero_grad();
    (ddp(x).sum() + local_forward()).backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 3.0))) << "one of two forwards is enough";
    local_forward().backward();
    EXPECT_TRUE(torch::equal(model->weight.grad(), 3 + x));
  });
}

}  // namespace
}  // namespace lockstep::parallel
