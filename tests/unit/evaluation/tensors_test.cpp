#include "lockstep/evaluation/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::usage_error;

TEST(Pixels, OfBytesAreTheSameWithTheChannelsTogether) {
  const at::Tensor picture = torch::arange(12).view({3, 2, 2}).to(at::kByte);
  const metrics::Pixels found = pixels(picture);
  EXPECT_EQ(found.height, 2);
  EXPECT_EQ(found.width, 2);
  EXPECT_EQ(found.channels, 3);
  EXPECT_THAT(found.values, ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
}

TEST(Pixels, OfFloatsAreFromZeroToOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const metrics::Pixels found = pixels(torch::tensor({{0.0f, 1.0f, 0.5f}, {-3.0f, 7.0f, nan}}).to(dtype));
    EXPECT_EQ(found.channels, 1);
    EXPECT_EQ(found.height, 2);
    EXPECT_THAT(found.values, ElementsAre(0, 255, 127, 0, 255, 0)) << dtype;
  }
}

TEST(Pixels, OfOtherTensorsAreRefused) {
  for (const at::Tensor& other : {torch::zeros({2, 4, 4}), torch::zeros({1, 1, 4, 4}), torch::zeros({0, 4}),
                                  torch::zeros({4, 4}, at::kLong), at::Tensor()})
    EXPECT_THAT(usage_error([&] { (void)pixels(other); }), HasSubstr("[channels, height, width]"));
}

TEST(Values, OfATensorInItsOrder) {
  const at::Tensor tensor = torch::arange(6).view({2, 3}).t().to(at::kBFloat16).requires_grad_();
  EXPECT_THAT(values(tensor), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(values(torch::tensor(true)), ElementsAre(1));
  EXPECT_THAT(values(torch::empty({0})), ElementsAre());
  EXPECT_THAT(usage_error([&] { (void)values(torch::zeros({2}, at::kComplexFloat)); }), HasSubstr("ComplexFloat [2]"));
}

}  // namespace
}  // namespace lockstep::evaluation
