// Training over a group that a user has written.

#include "tests/support/own_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/cores.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep {
namespace {

using support::BareGroup;
using support::RankKind;
using support::run_ranks;

// Without a node: the classic path, whose gradients are the mean over the ranks.
TEST(OwnGroups, TrainWithTheOptimizersOfTorch) {
  run_ranks(RankKind::processes, 2, [](const std::shared_ptr<comm::Group>& inner) {
    const World world = init({.group = std::make_shared<BareGroup>(inner), .idle_cores_hint = false});
    EXPECT_EQ(world.rank(), inner->rank());
    EXPECT_EQ(world.size(), 2);
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, world.group());
    const at::Tensor start = model->weight.detach().clone();  // rank 0's, on both
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.5));
    ddp(torch::full({1, 2}, float(world.rank() + 1))).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::equal(model->weight.detach(), start - 0.75));
    const auto weights = world.all_gather(model->weight);
    EXPECT_TRUE(torch::equal(weights.at(0), weights.at(1)));
  });
}

TEST(OwnGroups, WithoutANodeAreRefusedByOurOptimizers) {
  run_ranks(RankKind::processes, 2, [](const std::shared_ptr<comm::Group>& inner) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(model, std::make_shared<BareGroup>(inner));
    try {
      optim::SGD optimizer(ddp, {.lr = 0.1});
      ADD_FAILURE() << "attached";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("lockstep::optim"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("torch::optim"));
    }
    ddp(torch::ones({1, 2})).sum().backward();  // the classic path is as it was
    EXPECT_TRUE(model->weight.grad().defined());
  });
}

TEST(OwnGroups, ThatHandOnANodeTrainAsTheGroupBelow) {
  const support::SmallJob job;
  const std::string expected = support::hash_of(2, job);
  run_ranks(RankKind::processes, 2, [&](const std::shared_ptr<comm::Group>& inner) {
    EXPECT_EQ(support::run_small_job(std::make_shared<support::WrappingGroup>(inner), job), expected);
  });
}

TEST(OwnGroups, AreToldOfIdleCores) {
  run_ranks(RankKind::processes, 1, [](const std::shared_ptr<comm::Group>& inner) {
    const auto said = [&](const InitOptions& options) {
      ::testing::internal::CaptureStderr();
      const World world = init(options);
      return ::testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(said({.threads = base::usable_cores(), .group = inner}), "");
    EXPECT_EQ(said({.group = inner, .idle_cores_hint = false}), "");
    if (base::usable_cores() > 1) {
      EXPECT_THAT(said({.group = inner}), ::testing::HasSubstr("init({.threads = "));
    }
  });
}

}  // namespace
}  // namespace lockstep
