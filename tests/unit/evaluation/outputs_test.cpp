#include "lockstep/evaluation/outputs.h"

#include <gtest/gtest.h>
#include <torch/types.h>

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

}  // namespace
}  // namespace lockstep::evaluation
