// What training makes of a group whose collectives fail, and what it asks a group for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/lockstep.h"
#include "lockstep/testing.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::run_ranks;

enum class Path { classic, fused };

void train(const std::shared_ptr<comm::Group>& group, Path path, int steps) {
  torch::nn::Linear model(2, 1);
  DistributedDataParallel ddp(model, group);
  const at::Tensor x = torch::full({1, 2}, float(group->rank() + 1));
  if (path == Path::classic) {
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.5));
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      ddp(x).sum().backward();
      optimizer.step();
    }
    return;
  }
  optim::SGD optimizer(ddp, {.lr = 0.5});
  for (int step = 0; step < steps; ++step) {
    ddp(x).sum().backward();
    optimizer.step();
  }
}

class FailingCollectives : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Paths, FailingCollectives, ::testing::Values(Path::classic, Path::fused),
                         [](const auto& info) { return info.param == Path::classic ? "Classic" : "Fused"; });

// Each call in turn, until a job has none left to fail in.
TEST_P(FailingCollectives, EndTheJobOnAllRanksWithTheCause) {
  const Path path = GetParam();
  for (std::uint64_t at = 1; at <= 8; ++at)
    run_ranks(RankKind::processes, 2, [&](const std::shared_ptr<comm::Group>& inner) {
      const auto group = std::make_shared<comm::FailingGroup>(
          inner, comm::PlannedFailure{.at = at, .ranks = {1}, .cause = "the cable is out"});
      try {
        train(group, path, 3);
        EXPECT_LT(group->calls(), at) << "the call was made, and the job went on";
      } catch (const GroupAborted& aborted) {
        EXPECT_EQ(inner->rank(), 0) << aborted.what();
        EXPECT_EQ(aborted.failure().rank, 1);
        EXPECT_EQ(aborted.failure().cause, "the cable is out");
      } catch (const Error& error) {
        EXPECT_EQ(inner->rank(), 1) << error.what();
        EXPECT_STREQ(error.what(), "the cable is out");
      }
    });
}

// Of a rank that throws and tells nobody, the others learn when it leaves.
TEST_P(FailingCollectives, OfARankThatTellsNobodyTheOthersLearnWhenItIsGone) {
  run_ranks(RankKind::processes, 2, [&](const std::shared_ptr<comm::Group>& inner) {
    const auto group =
        std::make_shared<comm::FailingGroup>(inner, comm::PlannedFailure{.at = 1, .ranks = {1}, .tells = false});
    try {
      train(group, GetParam(), 3);
      ADD_FAILURE() << "rank " << inner->rank() << " went on";
    } catch (const GroupAborted& aborted) {
      EXPECT_EQ(aborted.failure().rank, 1) << aborted.what();
    } catch (const Error& error) {
      EXPECT_EQ(inner->rank(), 1) << error.what();
    }
  });
}

TEST(RecordedTraining, AStepSendsEachBucketOnce) {
  const auto group = std::make_shared<comm::RecordingGroup>(std::make_shared<comm::FakeGroup>(1, 4));
  torch::nn::Linear model(2, 1);
  DistributedDataParallel ddp(model, group);
  group->clear_calls();
  for (int step = 1; step <= 3; ++step) {
    {
      const auto local = ddp.no_sync();
      ddp(torch::ones({1, 2})).sum().backward();
    }
    EXPECT_EQ(group->count("all_reduce"), step - 1) << "none without synchronisation";
    ddp(torch::ones({1, 2})).sum().backward();
    EXPECT_EQ(group->count("all_reduce"), step);
  }
  const comm::RecordedCall last = group->calls().back();
  EXPECT_EQ(last.op, comm::ReduceOp::mean);
  EXPECT_EQ(last.sizes, (std::vector<std::int64_t>{3})) << "two weights and a bias";
}

}  // namespace
}  // namespace lockstep
