#include "lockstep/data/standardizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "tests/support/usage_error.h"

namespace lockstep::data {
namespace {

TEST(Standardizer, GivesMeanZeroAndDeviationOneByTheTrainingRows) {
  const at::Tensor train = torch::tensor({{1.0f, 5.0f}, {3.0f, 5.0f}, {5.0f, 5.0f}, {7.0f, 5.0f}});
  const Standardizer standardize(train);
  EXPECT_TRUE(at::equal(standardize.mean(), torch::tensor({4.0, 5.0}, at::kDouble)));
  EXPECT_TRUE(at::allclose(standardize.scale(), torch::tensor({std::sqrt(5.0), 1.0}, at::kDouble)))
      << "divided by N; a column of equal numbers has 1";
  const at::Tensor standard = standardize(train);
  EXPECT_EQ(standard.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(standard.select(1, 0).square().mean(), torch::tensor(1.0f)));
  EXPECT_TRUE(at::equal(standard.select(1, 1), torch::zeros({4})));
  EXPECT_TRUE(at::equal(standardize(torch::tensor({{4.0f, 6.0f}})), torch::tensor({{0.0f, 1.0f}})));
  EXPECT_EQ(standardize(torch::zeros({1, 2}, at::kLong)).scalar_type(), at::kFloat);
  EXPECT_EQ(standardize(torch::zeros({0, 2})).size(0), 0);
}

TEST(Standardizer, SaysWhatItCannotUse) {
  EXPECT_THAT(testing::usage_error([] { Standardizer(torch::zeros({3})); }), ::testing::HasSubstr("Float [3]"));
  EXPECT_THAT(testing::usage_error([] { Standardizer(torch::zeros({0, 3})); }),
              ::testing::HasSubstr("at least one row"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(testing::usage_error([&] { Standardizer(torch::tensor({{1.0f, nan}, {1.0f, 2.0f}})); }),
            "standardizer: column 2 holds a number that is not finite");
  const Standardizer standardize(torch::zeros({1, 2}));
  EXPECT_THAT(testing::usage_error([&] { standardize(torch::zeros({1, 3})); }), ::testing::HasSubstr("3 columns, 2"));
}

}  // namespace
}  // namespace lockstep::data
