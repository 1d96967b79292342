#include "lockstep/evaluation/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/support/own_group.h"
#include "tests/support/ranks.h"
#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

using support::RankKind;
using ::testing::HasSubstr;
using testing::usage_error;

// A regression whose sums round differently in every order.
std::shared_ptr<const data::Batches> points(std::int64_t samples) {
  const auto generator = torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(5));
  const at::Tensor x = torch::rand({samples, 3}, generator) * 1e3;
  return std::make_shared<data::TensorBatches>(x, x.sum(1, /*keepdim=*/true) / 7);
}

Totals of_points(const std::shared_ptr<comm::Group>& group, std::int64_t samples, std::int64_t batch_size) {
  torch::nn::Linear model(3, 1);
  {
    const torch::NoGradGuard no_grad;
    model->weight.fill_(0.1);
    model->bias.fill_(0.3);
  }
  parallel::DistributedDataParallel ddp(model, group);
  const auto sums_of = [&](const data::Batch& batch) -> Sums {
    const at::Tensor error = ddp(batch.data) - batch.target;
    return {{"squared", error.square().sum().item<double>()}, {"absolute", error.abs().sum().item<double>()}};
  };
  return evaluate(ddp, points(samples), sums_of, {.batch_size = batch_size});
}

TEST(Evaluate, SumsOverEverySampleOnce) {
  torch::nn::Linear model(1, 1);
  comm::SingleGroup group;
  for (const std::int64_t samples : {1, 499, 500, 501, 1250}) {
    const auto set = std::make_shared<data::TensorBatches>(torch::arange(samples));
    const Totals totals = evaluate(*model, group, set, [](const data::Batch& batch) -> Sums {
      return {{"ones", double(batch.data.size(0))}, {"numbers", double(batch.data.sum().item<std::int64_t>())}};
    });
    EXPECT_EQ(totals.samples, samples);
    EXPECT_EQ(totals.sums.at("ones"), double(samples));
    EXPECT_EQ(totals.mean("numbers"), double(samples - 1) / 2);
  }
}

// Seven batches, the last a short one: worlds in which some ranks have more than others, and one with too many ranks.
TEST(Evaluate, NoBitDependsOnTheNumberOfRanks) {
  Totals alone;
  support::run_ranks(RankKind::single, 1, [&](auto group) { alone = of_points(group, 61, 10); });
  EXPECT_GT(alone.mean("absolute"), 0);
  for (const int ranks : {2, 3, 4, 8}) {
    support::run_ranks(RankKind::processes, ranks, [&](auto group) {
      const Totals found = of_points(group, 61, 10);
      EXPECT_EQ(found.samples, 61);
      EXPECT_EQ(found.sums, alone.sums) << ranks;
    });
  }
}

TEST(Evaluate, WorksOverAGroupWithoutANode) {
  Totals alone;
  support::run_ranks(RankKind::single, 1, [&](auto group) { alone = of_points(group, 61, 10); });
  support::run_ranks(RankKind::processes, 2, [&](auto group) {
    EXPECT_EQ(of_points(std::make_shared<support::BareGroup>(group), 61, 10).sums, alone.sums);
  });
}

// Until a forward makes them equal, as in training, BatchNorm's statistics are each rank's own there.
TEST(Evaluate, OverAGroupWithoutANodeIsOfTheBuffersOfRank0) {
  support::run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::BatchNorm1d model(1);
    parallel::DistributedDataParallel ddp(model, std::make_shared<support::BareGroup>(group));
    ddp(torch::full({4, 1}, 1.0 + group->rank()));
    const auto found = evaluate(ddp, std::make_shared<data::TensorBatches>(torch::arange(2)),
                                [&](const data::Batch&) -> Sums {
                                  return {{"mean", model->running_mean.item<double>()}};
                                },
                                {.batch_size = 1});
    EXPECT_FLOAT_EQ(float(found.mean("mean")), 0.1f);
    EXPECT_FLOAT_EQ(model->running_mean.item<float>(), 0.1f);
  });
}

// With an optimizer of ours nobody but a step writes them.
TEST(Evaluate, BetweenStepsTouchesNoState) {
  support::run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::BatchNorm1d model(1);
    parallel::DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      ddp(torch::rand({4, 1})).sum().backward();
      optimizer.step();
      const std::string before = ddp.state().hash();
      EXPECT_EQ(evaluate(ddp, std::make_shared<data::TensorBatches>(torch::rand({9, 1})),
                         [&](const data::Batch& batch) -> Sums {
                           return {{"sum", ddp(batch.data).sum().template item<double>()}};
                         })
                    .samples,
                9);
      EXPECT_EQ(ddp.state().hash(), before);
    }
  });
}

TEST(Evaluate, TakesASetOfItsOwn) {
  struct Squares {
    std::int64_t size() const { return 5; }
    data::Batch get(std::int64_t i) const { return {torch::tensor(i * i), {}}; }
  };
  torch::nn::Linear model(1, 1);
  parallel::DistributedDataParallel ddp(model, std::make_shared<comm::SingleGroup>());
  const Totals found = evaluate(ddp, Squares{},
                                [](const data::Batch& batch) -> Sums {
                                  return {{"sum", batch.data.sum().item<double>()}};
                                },
                                {.batch_size = 2, .num_workers = 2, .prefetch_factor = 1, .timeout = 60});
  EXPECT_EQ(found.sums.at("sum"), 30);
}

TEST(Evaluate, OtherNamesThanTheFirstBatchsAreRefusedOnAllRanks) {
  support::run_ranks(RankKind::processes, 3, [](auto group) {
    torch::nn::Linear model(1, 1);
    const auto set = std::make_shared<data::TensorBatches>(torch::arange(25));
    const std::string refusal = usage_error([&] {
      evaluate(*model, *group, set,
               [](const data::Batch& batch) -> Sums {
                 return {{"loss", 1.0}, {batch.data[0].item<std::int64_t>() == 10 ? "odd" : "even", 1.0}};
               },
               {.batch_size = 10});
    });
    EXPECT_THAT(refusal, HasSubstr("samples 10 to 19"));
    EXPECT_THAT(refusal, HasSubstr("even, loss"));
    group->barrier();  // it can be used on
  });
}

TEST(Evaluate, WithoutSumsAndForUnknownOnesSaysSo) {
  torch::nn::Linear model(1, 1);
  comm::SingleGroup group;
  const auto set = std::make_shared<data::TensorBatches>(torch::arange(5));
  EXPECT_THAT(usage_error([&] { evaluate(*model, group, set, [](const data::Batch&) -> Sums { return {}; }); }),
              HasSubstr("no sums"));
  const Totals totals = evaluate(*model, group, set, [](const data::Batch&) -> Sums { return {{"loss", 1}}; });
  EXPECT_THAT(usage_error([&] { (void)totals.mean("los"); }), HasSubstr("did you mean 'loss'?"));
}

}  // namespace
}  // namespace lockstep::evaluation
