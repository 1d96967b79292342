#include "lockstep/evaluation/outputs.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/usage_error.h"

namespace lockstep::evaluation {
namespace {

TEST(OutputsOf, AreTheMeanOverTheCropsOfASample) {
  const at::Tensor data = at::arange(2 * 5 * 3 * 2 * 2, at::kFloat).view({2, 5, 3, 2, 2});
  const auto sums = [](const at::Tensor& pictures) {
    EXPECT_EQ(pictures.dim(), 4);
    return pictures.flatten(1).sum(1, /*keepdim=*/true);
  };
  EXPECT_TRUE(at::allclose(outputs_of(sums, data), data.flatten(2).sum(2).mean(1, /*keepdim=*/true)));
  const at::Tensor plain = data.select(1, 0);
  EXPECT_TRUE(at::equal(outputs_of(sums, plain), sums(plain)));
}

TEST(Difference, IsOfEqualShapesAndHasAGradient) {
  const at::Tensor output = at::arange(3, at::kFloat).requires_grad_(), target = at::ones({3});
  difference(output, target).square().sum().backward();
  EXPECT_TRUE(at::equal(output.grad(), 2 * (output.detach() - target)));
  EXPECT_EQ(difference(at::ones({4, 2}), at::ones({4, 2}, at::kLong)).abs().sum().item<float>(), 0);
}

TEST(Difference, OfOtherShapesIsAnErrorAndNoBroadcast) {
  const auto said = [](at::IntArrayRef output, at::IntArrayRef target) {
    return testing::usage_error([&] { difference(at::ones(output), at::ones(target)); });
  };
  EXPECT_EQ(said({5, 1}, {5}),
            "difference: output [5, 1] and target [5], equal shapes expected: output.squeeze(-1) has the target's");
  EXPECT_EQ(said({5}, {5, 1}), "difference: output [5] and target [5, 1], equal shapes expected");
  EXPECT_EQ(said({5, 3}, {5, 1}), "difference: output [5, 3] and target [5, 1], equal shapes expected");
}

}  // namespace
}  // namespace lockstep::evaluation
