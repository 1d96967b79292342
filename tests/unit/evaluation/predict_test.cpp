#include "lockstep/evaluation/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <limits>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/data/tensor_batches.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/support/own_group.h"
#include "tests/support/ranks.h"
#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

using support::RankKind;
using ::testing::HasSubstr;
using testing::usage_error;

std::shared_ptr<const data::Batches> numbers(std::int64_t samples) {
  return std::make_shared<data::TensorBatches>(torch::arange(samples));
}

// Runs `rows_of` over 61 samples in batches of 10, on one to eight ranks, and expects all of `expected` everywhere.
void expect_rows(const at::Tensor& expected, const RowsOf& rows_of) {
  const auto check = [&](const std::shared_ptr<comm::Group>& group) {
    torch::nn::Linear model(1, 1);
    const at::Tensor rows = predict(*model, *group, numbers(61), rows_of, {.batch_size = 10});
    ASSERT_EQ(rows.sizes(), expected.sizes());
    ASSERT_EQ(rows.scalar_type(), expected.scalar_type());
    EXPECT_EQ(std::memcmp(rows.data_ptr(), expected.data_ptr(), expected.nbytes()), 0) << group->size() << " ranks";
  };
  support::run_ranks(RankKind::single, 1, check);
  for (const int ranks : {2, 3, 8}) support::run_ranks(RankKind::processes, ranks, check);
}

TEST(Predict, HasARowForEverySampleInTheirOrder) {
  expect_rows(torch::arange(61) * 2, [](const data::Batch& batch) { return batch.data * 2; });
  expect_rows(torch::arange(61).view({61, 1, 1}).expand({61, 2, 3}).to(at::kDouble).contiguous(),
              [](const data::Batch& batch) {
                return batch.data.view({-1, 1, 1}).expand({-1, 2, 3}).to(at::kDouble);
              });
}

// A sum of floats would lose the sign of a zero.
TEST(Predict, KeepsEveryBit) {
  at::Tensor odd = torch::zeros({61});
  odd.fill_(-0.0);
  odd[30] = std::numeric_limits<float>::quiet_NaN();
  odd[31] = -std::numeric_limits<float>::infinity();
  expect_rows(odd, [&](const data::Batch& batch) { return odd.index_select(0, batch.data); });
  expect_rows(torch::arange(61) % 3 == 0, [](const data::Batch& batch) { return batch.data % 3 == 0; });
}

TEST(Predict, TakesASetOfItsOwnAndTheBuffersOfRank0) {
  struct Halves {
    std::int64_t size() const { return 5; }
    data::Batch get(std::int64_t i) const { return {torch::tensor(0.5 * double(i)), {}}; }
  };
  support::run_ranks(RankKind::processes, 2, [](auto group) {
    torch::nn::BatchNorm1d model(1);
    parallel::DistributedDataParallel ddp(model, std::make_shared<support::BareGroup>(group));
    ddp(torch::full({4, 1}, 10.0 + 10 * group->rank()));
    const auto rows_of = [&](const data::Batch& batch) { return batch.data + model->running_mean.round(); };
    EXPECT_TRUE(at::allclose(predict(ddp, Halves{}, rows_of, {.batch_size = 2}).to(at::kDouble),
                             torch::arange(5).to(at::kDouble) / 2 + 1));
  });
}

TEST(Predict, OtherRowsThanTheFirstBatchsAreRefusedOnAllRanks) {
  support::run_ranks(RankKind::processes, 3, [](auto group) {
    torch::nn::Linear model(1, 1);
    const auto of = [&](const RowsOf& rows_of) {
      return usage_error([&] { (void)predict(*model, *group, numbers(25), rows_of, {.batch_size = 10}); });
    };
    EXPECT_THAT(of([](const data::Batch& batch) {
                  return batch.data[0].item<std::int64_t>() == 20 ? batch.data.to(at::kFloat) : batch.data;
                }),
                HasSubstr("samples 20 to 24"));
    EXPECT_THAT(of([](const data::Batch& batch) { return batch.data.sum(); }), HasSubstr("first batch gave no tensor"));
    group->barrier();  // it can be used on
  });
}

}  // namespace
}  // namespace lockstep::evaluation
