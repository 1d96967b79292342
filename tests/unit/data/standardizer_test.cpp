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

// The sum of three 0.1 in float64, divided by three, is not 0.1.
TEST(Standardizer, AColumnOfEqualNumbersIsZeroWhateverItsMeanRoundsTo) {
  for (const double number : {0.1, -1e308, 5e-324}) {
    const at::Tensor rows = torch::full({3, 1}, number, at::kDouble);
    const Standardizer standardize(rows);
    EXPECT_EQ(standardize.mean().item<double>(), number);
    EXPECT_EQ(standardize.scale().item<double>(), 1);
    EXPECT_TRUE(at::equal(standardize(rows), torch::zeros({3, 1}, at::kDouble)));
  }
}

TEST(Standardizer, NumbersWithoutADeviationInFloat64) {
  const auto refusal_of = [](double number) {
    const at::Tensor rows = torch::tensor({{1.0, number}, {2.0, -number}, {3.0, number}, {4.0, -number}}, at::kDouble);
    return testing::usage_error([&] { Standardizer standardize(rows); });
  };
  for (const double number : {1e200, 1.7e308})
    EXPECT_THAT(refusal_of(number), ::testing::HasSubstr("column 2 holds numbers too large"));
  const at::Tensor rows = torch::tensor({{1e-200}, {-1e-200}}, at::kDouble);
  EXPECT_EQ(Standardizer(rows).scale().item<double>(), 1) << "too close to each other";
}

TEST(Standardizer, SaysWhatItCannotUse) {
  EXPECT_THAT(testing::usage_error([] { Standardizer(torch::zeros({3})); }), ::testing::HasSubstr("Float [3]"));
  EXPECT_THAT(testing::usage_error([] {
                Standardizer(torch::zeros({0, 3}));
              }),
              ::testing::HasSubstr("at least one row"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(testing::usage_error([&] {
              Standardizer(torch::tensor({{1.0f, nan}, {1.0f, 2.0f}}));
            }),
            "standardizer: column 2 holds a number that is not finite");
  const Standardizer standardize(torch::zeros({1, 2}));
  EXPECT_THAT(testing::usage_error([&] { standardize(torch::zeros({1, 3})); }), ::testing::HasSubstr("3 columns, 2"));
}

}  // namespace
}  // namespace lockstep::data
