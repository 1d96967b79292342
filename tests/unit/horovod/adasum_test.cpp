#include "lockstep/horovod/adasum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "tests/support/usage_error.h"
#include "tests/unit/horovod/plain_adasum.h"

namespace lockstep::horovod {
namespace {

at::Tensor vector_of(const std::vector<double>& values, at::ScalarType dtype = at::kDouble) {
  return torch::tensor(values, torch::kDouble).to(dtype);
}

TEST(Adasum, AddsWhatIsOrthogonalAndAveragesWhatIsEqual) {
  EXPECT_TRUE(torch::equal(adasum({vector_of({2, 0}), vector_of({0, 3})}), vector_of({2, 3})));
  EXPECT_TRUE(torch::equal(adasum({vector_of({2, 4}), vector_of({2, 4})}), vector_of({2, 4})));
  EXPECT_TRUE(torch::equal(adasum({vector_of({2, 4}), vector_of({0, 0})}), vector_of({2, 4}))) << "none without data";
  EXPECT_TRUE(torch::equal(adasum({vector_of({0, 0}), vector_of({0, 0})}), vector_of({0, 0})));
  EXPECT_TRUE(torch::equal(adasum({vector_of({7})}), vector_of({7})));
  EXPECT_EQ(adasum({torch::empty({0, 3}), torch::empty({0, 3})}).sizes(), at::IntArrayRef({0, 3}));
}

TEST(Adasum, IsTheFormulaForAnyNumber) {
  for (const int ranks : {2, 3, 4, 5, 6, 7, 8})
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      std::vector<at::Tensor> tensors;
      std::vector<std::vector<double>> plain;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto generator = torch::make_generator<at::CPUGeneratorImpl>(std::uint64_t(rank + 1));
        tensors.push_back(torch::rand({3, 5}, generator).sub_(0.3).to(dtype).t());
        const at::Tensor wide = tensors.back().to(at::kDouble).contiguous();
        plain.emplace_back(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
      }
      const at::Tensor expected = vector_of(plain_adasum(plain)).view({5, 3});
      const at::Tensor result = adasum(tensors);
      EXPECT_EQ(result.scalar_type(), dtype);
      if (dtype == at::kDouble) {
        EXPECT_TRUE(torch::allclose(result, expected, 1e-14, 1e-15)) << ranks;
      } else {
        EXPECT_TRUE(torch::equal(result, expected.to(dtype))) << ranks << " x " << dtype << ": rounded once";
      }
    }
}

TEST(Adasum, OfTinyAndHugeVectorsKeepsTheirScale) {
  for (const double scale : {1e-30, 1e30}) {
    const at::Tensor sum = adasum({vector_of({scale, 0}, at::kFloat), vector_of({scale, scale}, at::kFloat)});
    const auto expected = plain_adasum({{scale, 0}, {scale, scale}});
    EXPECT_NEAR(sum[0].item<double>() / expected[0], 1, 1e-6);
    EXPECT_NEAR(sum[1].item<double>() / expected[1], 1, 1e-6);
  }
  const at::Tensor nan = adasum({vector_of({std::numeric_limits<double>::quiet_NaN(), 1}), vector_of({1, 1})});
  EXPECT_TRUE(nan.isnan().any().item<bool>());
}

TEST(Adasum, OfIntegersIsRefused) {
  EXPECT_THAT(testing::usage_error([] { (void)adasum({torch::zeros({2}, torch::kLong)}); }),
              ::testing::HasSubstr("Long is no floating dtype"));
  EXPECT_THAT(testing::usage_error([] { (void)adasum({}); }), ::testing::HasSubstr("at least one"));
}

}  // namespace
}  // namespace lockstep::horovod
