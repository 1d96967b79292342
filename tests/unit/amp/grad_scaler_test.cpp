#include "lockstep/amp/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "lockstep/amp/fused_optimizers.h"
#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ScalerState, BacksOffAtOnceAndGrowsAfterAnInterval) {
  const GradScalerOptions options{.growth_interval = 3};
  ScalerState state{.scale = 8};
  for (int i = 0; i < 2; ++i) state = next(state, false, options);
  EXPECT_EQ(state.scale, 8);
  EXPECT_EQ(state.growth_tracker, 2);
  state = next(state, false, options);
  EXPECT_EQ(state.scale, 16);
  EXPECT_EQ(state.growth_tracker, 0);
  state = next(next(state, false, options), true, options);
  EXPECT_EQ(state.scale, 8);
  EXPECT_EQ(state.growth_tracker, 0);
}

TEST(ScalerState, StaysWithinItsFloorAndCeilingAndIsAlwaysANumber) {
  const GradScalerOptions bounded{.growth_interval = 1, .min_scale = 4, .max_scale = 20};
  EXPECT_EQ(next({.scale = 16}, false, bounded).scale, 20);
  EXPECT_EQ(next({.scale = 5}, true, bounded).scale, 4);
  EXPECT_EQ(next({.scale = 0x1p127}, false, {.growth_interval = 1}).scale, 0x1p127) << "as PyTorch, not infinite";
}

TEST(ScalerState, IsRoundedToFloat32) {
  EXPECT_EQ(next({.scale = 1}, true, {.backoff_factor = 0.3}).scale, double(0.3f));
  EXPECT_EQ(GradScaler({.init_scale = 0.1}).get_scale(), double(0.1f));
}

TEST(GradScaler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(GradScaler({.init_scale = 0}), UsageError);
  EXPECT_THROW(GradScaler({.init_scale = kInfinity}), UsageError);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), UsageError);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), UsageError);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), UsageError);
  EXPECT_THROW(GradScaler({.min_scale = 5, .max_scale = 4}), UsageError);
  EXPECT_THROW(GradScaler({.init_scale = 65536, .max_scale = 1024}), UsageError);
  EXPECT_THROW(GradScaler({.init_scale = 65536, .min_scale = 0x1p20}), UsageError);
  EXPECT_THROW(GradScaler({.init_scale = 1e-50}), UsageError) << "no float32";
  GradScaler scaler;
  EXPECT_THROW(scaler.load_state_dict({.scale = NAN}), UsageError);
  scaler.load_state_dict({.scale = 2, .growth_tracker = 7});
  EXPECT_EQ(scaler.state_dict().growth_tracker, 7);
  EXPECT_EQ(scaler.scale(at::ones({1})).item<float>(), 2);
}

// An optimizer of torch's, as on the classic path.
struct Torchs {
  at::Tensor weight = at::ones({2, 1}).requires_grad_();
  torch::optim::SGD optimizer{{weight}, torch::optim::SGDOptions(1)};
  void backward(const GradScaler& scaler, float factor) { scaler.scale((weight * factor).sum()).backward(); }
};

TEST(GradScaler, StepsATorchOptimizerWithUnscaledGradients) {
  Torchs torchs;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  torchs.backward(scaler, 0.25);
  scaler.unscale_(torchs.optimizer);
  EXPECT_TRUE(at::equal(torchs.weight.grad(), at::full({2, 1}, 0.25)));
  EXPECT_TRUE(scaler.step(torchs.optimizer)) << "not unscaled twice";
  EXPECT_TRUE(at::equal(torchs.weight, at::full({2, 1}, 0.75)));
  EXPECT_EQ(scaler.get_scale(), 4);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 8);
}

// libtorch's parameters() tells of a tied parameter under each of its names, Python's once.
TEST(GradScaler, UnscalesATiedParameterOnce) {
  const at::Tensor weight = at::ones({2, 1}).requires_grad_();
  torch::optim::SGD optimizer({weight, weight}, torch::optim::SGDOptions(0.5));
  GradScaler scaler({.init_scale = 4});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    scaler.scale((weight * 0.25).sum()).backward();
    scaler.unscale_(optimizer);
    EXPECT_TRUE(at::equal(weight.grad(), at::full({2, 1}, 0.25))) << step;
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
  }
}

TEST(GradScaler, LeavesATorchOptimizerAloneWhenSomethingOverflows) {
  Torchs torchs;
  GradScaler scaler({.init_scale = 4});
  torchs.backward(scaler, std::numeric_limits<float>::infinity());
  EXPECT_FALSE(scaler.step(torchs.optimizer));
  scaler.update();
  EXPECT_TRUE(at::equal(torchs.weight, at::ones({2, 1})));
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.overflowed(), "a parameter of sizes [2, 1]");
}

// Where no device has the gradients, it is as any other.
TEST(GradScaler, OfAFusedOptimizerOnTheCpuTheHostDecides) {
  const at::Tensor weight = at::ones({2, 1}).requires_grad_();
  FusedSGD optimizer({weight}, torch::optim::SGDOptions(1));
  GradScaler scaler({.init_scale = 4});
  scaler.scale((weight * std::numeric_limits<float>::infinity()).sum()).backward();
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.overflowed(), "a parameter of sizes [2, 1]");
  optimizer.zero_grad();
  scaler.scale((weight * 0.25).sum()).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_TRUE(at::equal(weight, at::full({2, 1}, 0.75)));
}

TEST(GradScaler, UnscalesEachOptimizerAndSkipsThoseOfItsOwnGradients) {
  const float infinity = std::numeric_limits<float>::infinity();
  Torchs first, second;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  first.backward(scaler, infinity);
  second.backward(scaler, 0.25);
  EXPECT_FALSE(scaler.step(first.optimizer));
  EXPECT_TRUE(scaler.step(second.optimizer));
  EXPECT_TRUE(at::equal(second.weight, at::full({2, 1}, 0.75))) << "unscaled, too";
  EXPECT_EQ(scaler.found_inf(), true);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2) << "one is enough, and all count once";
  EXPECT_EQ(scaler.found_inf(), std::nullopt);

  first.optimizer.zero_grad();
  second.optimizer.zero_grad();
  first.backward(scaler, 0.25);
  second.backward(scaler, infinity);
  scaler.unscale_(first.optimizer);
  scaler.unscale_(second.optimizer);
  EXPECT_TRUE(scaler.step(first.optimizer)) << "the other's overflow is not its own";
  EXPECT_FALSE(scaler.step(second.optimizer));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(at::equal(first.weight, second.weight));
}

TEST(GradScaler, RefusesWhatPythonsRefusesBetweenTwoUpdates) {
  Torchs torchs;
  GradScaler scaler({.init_scale = 4});
  torchs.backward(scaler, 0.25);
  scaler.unscale_(torchs.optimizer);
  EXPECT_THAT([&] { scaler.unscale_(torchs.optimizer); },
              ::testing::ThrowsMessage<UsageError>("GradScaler: unscale_() of this optimizer again before update()"));
  EXPECT_TRUE(scaler.step(torchs.optimizer));
  EXPECT_THAT([&] { scaler.step(torchs.optimizer); },
              ::testing::ThrowsMessage<UsageError>("GradScaler: step() of this optimizer again before update()"));
  EXPECT_THAT([&] { scaler.unscale_(torchs.optimizer); },
              ::testing::ThrowsMessage<UsageError>(
                  "GradScaler: unscale_() of an optimizer behind its step(); update() comes first"));
  EXPECT_TRUE(at::equal(torchs.weight.grad(), at::full({2, 1}, 0.25)));
  scaler.update();
  scaler.unscale_(torchs.optimizer);
}

TEST(GradScaler, SwitchedOffDoesNothing) {
  Torchs torchs;
  GradScaler scaler({.enabled = false});
  EXPECT_EQ(scaler.get_scale(), 1);
  torchs.backward(scaler, 0.25);
  EXPECT_TRUE(scaler.step(torchs.optimizer));
  scaler.update();
  EXPECT_TRUE(at::equal(torchs.weight, at::full({2, 1}, 0.75)));
}

}  // namespace
}  // namespace lockstep::amp
