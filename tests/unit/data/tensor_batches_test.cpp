#include "lockstep/data/tensor_batches.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

using testing::usage_error;
using Indices = std::vector<std::int64_t>;

TEST(TensorBatches, GathersRowsOfEveryDtype) {
  const Indices indices = {3, 0, 3, 1};
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kByte, at::kBool, at::kComplexFloat}) {
    const at::Tensor data = torch::arange(24).view({4, 2, 3}).to(dtype), target = torch::arange(4).to(dtype);
    const TensorBatches set(data, target);
    EXPECT_EQ(set.size(), 4);
    for (const std::uint64_t epoch : {0, 5}) {
      const Batch batch = set.make(epoch, indices);
      EXPECT_EQ(batch.data.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(batch.data, data.index_select(0, torch::tensor(indices))));
      EXPECT_TRUE(at::equal(batch.target, target.index_select(0, torch::tensor(indices))));
    }
  }
}

TEST(TensorBatches, SharesTheMemoryOfContiguousTensorsOnly) {
  const at::Tensor data = torch::zeros({3, 2}), across = torch::arange(6).view({2, 3}).t();
  const TensorBatches set(data, across);
  data.fill_(7);
  const Batch batch = set.make(0, Indices{2});
  EXPECT_TRUE(at::equal(batch.data, torch::full({1, 2}, 7.0f)));
  EXPECT_TRUE(at::equal(batch.target, torch::tensor({{2, 5}})));
}

// As index_select reads them: strides of any kind, where that of a single row means nothing.
TEST(TensorBatches, ReadsRowsWhateverTheirStrides) {
  const at::Tensor base = torch::arange(120).view({6, 5, 4});
  const std::vector<std::pair<const char*, at::Tensor>> views = {
      {"one row turned on its side", torch::arange(10).reshape({10, 1}).t()},
      {"one row far from the next", torch::rand({1000, 10}).slice(0, 0, 1000, 1000)},
      {"transposed", base.transpose(0, 2)},
      {"transposed within rows", base.transpose(1, 2)},
      {"every second row", base.slice(0, 1, 6, 2)},
      {"part of each row", base.slice(2, 1, 3)},
      {"from the middle", base.slice(0, 2)},
      {"expanded to rows", torch::arange(4).expand({3, 4})},
      {"expanded within rows", torch::arange(3).view({3, 1}).expand({3, 4})},
      {"one number for all", torch::tensor(7).expand({5})},
      {"single column", base.select(2, 1).slice(1, 2, 3)},
      {"channels last", torch::rand({3, 2, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast)},
      {"conjugate", torch::view_as_complex(torch::rand({3, 4, 2})).conj()},
      {"negative", at::imag(torch::view_as_complex(torch::rand({3, 4, 2})).conj())},
  };
  for (const auto& [how, view] : views) {
    SCOPED_TRACE(how);
    const Indices indices = {view.size(0) - 1, 0, view.size(0) / 2};
    const at::Tensor expected = view.index_select(0, torch::tensor(indices)).resolve_conj().resolve_neg();
    const Batch batch = TensorBatches(view, view).make(0, indices);
    EXPECT_TRUE(at::equal(batch.data, expected));
    EXPECT_TRUE(at::equal(batch.target, expected));
    EXPECT_TRUE(batch.data.is_contiguous());
  }
}

// A tensor of half a terabyte, if it were written out.
TEST(TensorBatches, WritesOutNoSetWhoseRowsAreInOnePiece) {
  const at::Tensor row = torch::arange(4), many = row.expand({std::int64_t(1) << 34, 4});
  const TensorBatches set(many);
  row.fill_(9);
  EXPECT_TRUE(at::equal(set.make(0, Indices{1, many.size(0) - 1}).data, torch::full({2, 4}, 9)));
}

TEST(TensorBatches, TargetsAreOptionalAndRowsMayBeNumbersOrEmpty) {
  const TensorBatches numbers(torch::tensor({5, 6, 7}));
  EXPECT_TRUE(at::equal(numbers.make(0, Indices{2, 1}).data, torch::tensor({7, 6})));
  EXPECT_FALSE(numbers.make(0, Indices{2}).target.defined());
  EXPECT_EQ(numbers.make(0, Indices{}).data.sizes(), (Indices{0}));
  const TensorBatches empty(torch::empty({3, 0}), torch::empty({3}));
  EXPECT_EQ(empty.make(0, Indices{0, 2}).data.sizes(), (Indices{2, 0}));
  const TensorBatches nothing(torch::empty({0, 4}));
  EXPECT_EQ(nothing.size(), 0);
  EXPECT_EQ(nothing.make(0, Indices{}).data.sizes(), (Indices{0, 4}));
}

TEST(TensorBatches, WhatWantsGradientsGivesPlainBatches) {
  const TensorBatches set(torch::ones({2, 2}, torch::requires_grad()));
  EXPECT_FALSE(set.make(0, Indices{0}).data.requires_grad());
}

TEST(TensorBatches, RefusesWhatIsNoSet) {
  EXPECT_EQ(usage_error([] {
              TensorBatches(torch::zeros({3, 1}), torch::zeros({2}));
            }),
            "data of 3 samples, targets of 2");
  EXPECT_EQ(usage_error([] { TensorBatches(torch::tensor(1)); }),
            "data tensor of samples: dense, in CPU memory and of at least one dimension expected");
  usage_error([] { TensorBatches(torch::zeros({2, 2}).to_sparse()); });
  usage_error([] { TensorBatches(at::Tensor{}); });
  const TensorBatches set(torch::zeros({3, 1}));
  for (const std::int64_t index : {-1, 3}) {
    EXPECT_EQ(usage_error([&] { set.make(0, Indices{index}); }),
              "sample " + std::to_string(index) + " asked for, the set has 3");
  }
}

}  // namespace
}  // namespace lockstep::data
