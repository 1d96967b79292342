#include "lockstep/amp/clip_grad_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/support/usage_error.h"

namespace lockstep::amp {
namespace {

constexpr double kMaximum = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> with_gradients() {
  torch::manual_seed(5);
  std::vector<at::Tensor> made = {torch::randn({7, 3}).requires_grad_(), torch::randn({4}).requires_grad_(),
                                  torch::randn({2}).requires_grad_()};
  made[0].mutable_grad() = torch::randn({7, 3});
  made[1].mutable_grad() = torch::randn({4});
  return made;  // the last has none
}

TEST(ClipGradNorm, IsTorchs) {
  for (const double type : {1.0, 2.0, 3.5, kMaximum})
    for (const double most : {0.5, 1000.0}) {
      const auto ours = with_gradients(), theirs = with_gradients();
      const at::Tensor norm = clip_grad_norm_(ours, most, type);
      const double wanted = torch::nn::utils::clip_grad_norm_(theirs, most, type);
      EXPECT_EQ(norm.dim(), 0);
      EXPECT_NEAR(norm.item<double>(), wanted, 1e-5 * wanted);
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad())) << type << " " << most;
    }
}

TEST(ClipGradNorm, OfNothingIsZero) {
  EXPECT_EQ(clip_grad_norm_({torch::ones({2})}, 1).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_({}, 1).item<double>(), 0);
}

TEST(ClipGradNorm, ANormThatIsNoNumberSpreadsOrIsAnError) {
  auto parameters = with_gradients();
  parameters[1].mutable_grad()[0] = std::nan("");
  const at::Tensor before = parameters[0].grad().clone();
  EXPECT_THROW(clip_grad_norm_(parameters, 1, 2, /*error_if_nonfinite=*/true), Error);
  EXPECT_TRUE(torch::equal(parameters[0].grad(), before)) << "nothing was written";
  EXPECT_TRUE(std::isnan(clip_grad_norm_(parameters, 1).item<double>()));
  EXPECT_TRUE(parameters[0].grad().isnan().all().item<bool>());
}

TEST(ClipGradNorm, RefusesWhatIsNoNorm) {
  EXPECT_EQ(testing::usage_error([] { clip_grad_norm_({}, -1); }), "clip_grad_norm_: max_norm is -1.000000, below 0");
  EXPECT_EQ(testing::usage_error([] { clip_grad_norm_({}, 1, 0); }),
            "clip_grad_norm_: norm_type is 0.000000, not above 0");
}

}  // namespace
}  // namespace lockstep::amp
