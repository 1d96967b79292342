// The scale on a device, for which the CPU stands here. That of a GradScaler: unit/parallel/device_scaler_test.cpp.

#include "lockstep/amp/device_scale.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <optional>
#include <vector>

#include "lockstep/amp/grad_scaler.h"

namespace lockstep::amp {
namespace {

void expect_same_trajectory(ScalerState here, const GradScalerOptions& options) {
  DeviceScale there(here, options, at::kCPU);
  for (int step = 0; step < 40; ++step) {
    const bool overflow = step == 6 || step == 7 || step == 19;
    here = next(here, overflow, options);
    there.update({torch::tensor(0.0F), torch::tensor(overflow ? 1.0F : 0.0F)}, options);
    EXPECT_EQ(there.overflowed(), overflow) << step;
    EXPECT_EQ(there.read().scale, here.scale) << step;
    EXPECT_EQ(there.read().growth_tracker, here.growth_tracker) << step;
  }
}

TEST(DeviceScale, GoesAsTheOneOfTheHost) {
  expect_same_trajectory({.scale = 1024}, {.growth_interval = 3});
  expect_same_trajectory({.scale = 3}, {.growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 5});
  expect_same_trajectory({.scale = 64}, {.growth_interval = 2, .min_scale = 50, .max_scale = 100});
  expect_same_trajectory({.scale = 0x1p126}, {.growth_interval = 1});
  expect_same_trajectory({.scale = 8, .growth_tracker = 7}, {.growth_interval = 3});
}

TEST(DeviceScale, DividesGradientsOnceAndTellsOfAnyThatIsNotFinite) {
  const DeviceScale scale({.scale = 4}, {}, at::kCPU);
  const at::Tensor single = torch::zeros({2}), twice = torch::zeros({3}, at::kDouble), none = torch::zeros({4});
  single.mutable_grad() = torch::full({2}, 8.0F);
  twice.mutable_grad() = torch::full({3}, 8.0, at::kDouble);
  const std::vector<at::Tensor> parameters = {single, twice, none, single};
  EXPECT_EQ(scale.unscale_(parameters).item<float>(), 0);
  EXPECT_TRUE(torch::equal(single.grad(), torch::full({2}, 2.0F)));
  EXPECT_TRUE(torch::equal(twice.grad(), torch::full({3}, 2.0, at::kDouble)));
  twice.grad().select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(scale.unscale_(parameters).item<float>(), 1);
}

TEST(DeviceScale, ScalesALossOfTrainingWhereverItWasMade) {
  std::optional<DeviceScale> scale;
  {
    const c10::InferenceMode evaluating;
    scale.emplace(ScalerState{.scale = 4}, GradScalerOptions{}, at::kCPU);
  }
  const auto gradient = [&] {
    const at::Tensor weight = torch::ones({2}).requires_grad_();
    scale->scale(weight.sum()).backward();
    return weight.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(), torch::full({2}, 4.0F)));
  {
    const c10::InferenceMode evaluating;
    scale->update({torch::tensor(1.0F)}, {});
  }
  EXPECT_TRUE(torch::equal(gradient(), torch::full({2}, 2.0F)));
}

}  // namespace
}  // namespace lockstep::amp
