#include "lockstep/evaluation/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/data/tensor_batches.h"
#include "tests/support/own_group.h"
#include "tests/support/ranks.h"
#include "tests/support/usage_error.h"
#include "tests/support/what_of.h"

namespace lockstep::evaluation {
namespace {

using support::RankKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::usage_error;

// Sample i is the number i.
std::shared_ptr<const data::Batches> counting(std::int64_t samples) {
  return std::make_shared<data::TensorBatches>(torch::arange(samples));
}

// What a rank is given: number, first sample and samples of each batch.
std::vector<std::vector<std::int64_t>> given_to(int rank, int ranks, std::int64_t samples, std::int64_t batch_size) {
  torch::nn::Linear model(1, 1);
  support::BareGroup group(std::make_shared<comm::SingleGroup>(), comm::on_one_node(rank, ranks));
  std::vector<std::vector<std::int64_t>> given;
  for_each_batch(*model, group, counting(samples), {.batch_size = batch_size}, [&](const PlacedBatch& placed) {
    given.push_back({placed.number, placed.first, placed.batch.data.size(0)});
    EXPECT_EQ(placed.batch.data[0].item<std::int64_t>(), placed.first);
  });
  return given;
}

using Given = std::vector<std::int64_t>;

TEST(Pass, RanksTakeBatchesInTurn) {
  EXPECT_THAT(given_to(0, 1, 7, 3), ElementsAre(Given{0, 0, 3}, Given{1, 3, 3}, Given{2, 6, 1}));
  EXPECT_THAT(given_to(0, 2, 7, 3), ElementsAre(Given{0, 0, 3}, Given{2, 6, 1}));
  EXPECT_THAT(given_to(1, 2, 7, 3), ElementsAre(Given{1, 3, 3}));
  EXPECT_THAT(given_to(3, 4, 7, 3), ElementsAre());
}

TEST(Pass, IsWithoutTrainingAndLeavesTheModelInItsMode) {
  torch::nn::Linear model(1, 1);
  comm::SingleGroup group;
  const auto pass = [&] {
    for_each_batch(*model, group, counting(2), {}, [&](const PlacedBatch&) {
      EXPECT_FALSE(model->is_training());
      EXPECT_FALSE(at::GradMode::is_enabled());
    });
  };
  pass();
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
  model->eval();
  pass();
  EXPECT_FALSE(model->is_training());
}

// A frozen BatchNorm: eval() of a part of a model that trains.
TEST(Pass, LeavesEachModuleInItsOwnMode) {
  torch::nn::ModuleList inner(torch::nn::Linear(1, 1), torch::nn::BatchNorm1d(1));
  torch::nn::ModuleList model(inner, torch::nn::Linear(1, 1));
  inner->eval();
  inner->ptr(0)->train();
  comm::SingleGroup group;
  for_each_batch(*model, group, counting(2), {},
                 [&](const PlacedBatch&) { EXPECT_FALSE(inner->ptr(0)->is_training()); });
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(inner->is_training());
  EXPECT_TRUE(inner->ptr(0)->is_training());
  EXPECT_FALSE(inner->ptr(1)->is_training());
  EXPECT_TRUE(model->ptr(1)->is_training());
}

TEST(Pass, ThatCannotBeIsRefused) {
  torch::nn::Linear model(1, 1);
  const auto refusal_of = [&](const std::shared_ptr<const data::Batches>& set, const PassOptions& options) {
    comm::SingleGroup group;
    return usage_error([&] { for_each_batch(*model, group, set, options, [](const PlacedBatch&) {}); });
  };
  EXPECT_THAT(refusal_of(counting(2), {.batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(refusal_of(counting(0), {}), HasSubstr("no samples"));
  EXPECT_THAT(refusal_of(nullptr, {}), HasSubstr("no set"));
  EXPECT_THAT(refusal_of(counting(2), {.num_workers = 0}), HasSubstr(".num_workers 0"));
  EXPECT_THAT(refusal_of(counting(2), {.prefetch_factor = 0}), HasSubstr(".prefetch_factor 0"));
  EXPECT_THAT(refusal_of(counting(2), {.timeout = 0}), HasSubstr(".timeout 0"));
}

TEST(Pass, OfDifferentSetsOrBatchSizesIsRefusedOnAllRanks) {
  support::run_ranks(RankKind::processes, 3, [](auto group) {
    torch::nn::Linear model(1, 1);
    const auto refusal_of = [&](std::int64_t samples, std::int64_t batch_size) {
      return usage_error([&] {
        for_each_batch(*model, *group, counting(samples), {.batch_size = batch_size},
                       [](const PlacedBatch&) { ADD_FAILURE() << "has begun"; });
      });
    };
    const bool last = group->rank() == 2;
    EXPECT_THAT(refusal_of(last ? 31 : 61, 10), AllOf(HasSubstr("61 on rank 0"), HasSubstr("31 on rank 2")));
    EXPECT_THAT(refusal_of(61, last ? 0 : 10), AllOf(HasSubstr("10 on rank 0"), HasSubstr("0 on rank 2")));
    group->barrier();  // it can be used on
  });
}

TEST(Pass, OneRankThatIsAskedToStopEndsItOnAllBehindTheSameBatch) {
  support::run_ranks(RankKind::processes, 3, [](auto group) {
    torch::nn::Linear model(1, 1);
    std::int64_t visited = 0;
    const auto pass = [&](const std::function<bool()>& asked) {
      visited = 0;
      for_each_batch(*model, *group, counting(10), {.batch_size = 1, .asked_to_stop = asked},
                     [&](const PlacedBatch&) { ++visited; });
    };
    EXPECT_THROW(pass([&] { return group->rank() == 2 && visited == 2; }), Stopped);
    EXPECT_EQ(visited, 2);
    EXPECT_TRUE(model->is_training());
    pass([] { return false; });
    EXPECT_EQ(visited, group->rank() == 0 ? 4 : 3) << "it can be used on, and nobody asks in vain";
  });
}

// A set of two samples, of which the second cannot be read.
class HalfDamaged : public data::Batches {
 public:
  std::int64_t size() const override { return 2; }
  data::Batch make(std::uint64_t, std::span<const std::int64_t> indices) const override {
    if (indices[0] == 1) throw std::runtime_error("sample 1 is damaged");
    return {torch::zeros({1}), {}};
  }
};

TEST(Pass, WhatARankThrowsEndsTheGroup) {
  const auto expect_end = [](const std::shared_ptr<const data::Batches>& set, const char* cause) {
    support::run_ranks(RankKind::processes, 2, [&](auto group) {
      torch::nn::Linear model(1, 1);
      const std::string said = support::what_of([&] {
        for_each_batch(*model, *group, set, {.batch_size = 1}, [](const PlacedBatch& placed) {
          if (placed.number == 1) throw std::runtime_error("the loss is nan");
        });
        group->barrier();
      });
      if (group->rank() == 0)
        EXPECT_THAT(said, AllOf(HasSubstr("rank 1"), HasSubstr(cause)));
      else
        EXPECT_EQ(said, cause);
    });
  };
  expect_end(counting(2), "the loss is nan");
  expect_end(std::make_shared<HalfDamaged>(), "sample 1 is damaged");
}

}  // namespace
}  // namespace lockstep::evaluation
