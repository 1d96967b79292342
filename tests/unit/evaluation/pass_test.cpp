#include "lockstep/evaluation/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/comm/topology.h"
#include "lockstep/data/tensor_batches.h"
#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

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
  std::vector<std::vector<std::int64_t>> given;
  for_each_batch(*model, counting(samples), comm::on_one_node(rank, ranks), {.batch_size = batch_size},
                 [&](const PlacedBatch& placed) {
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
  const auto pass = [&] {
    for_each_batch(*model, counting(2), {}, {}, [&](const PlacedBatch&) {
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

TEST(Pass, ThatCannotBeIsRefused) {
  torch::nn::Linear model(1, 1);
  const auto nothing = [](const PlacedBatch&) {};
  EXPECT_THAT(usage_error([&] { for_each_batch(*model, counting(2), {}, {.batch_size = 0}, nothing); }),
              HasSubstr("batch_size is 0"));
  EXPECT_THAT(usage_error([&] { for_each_batch(*model, counting(0), {}, {}, nothing); }), HasSubstr("no samples"));
}

}  // namespace
}  // namespace lockstep::evaluation
