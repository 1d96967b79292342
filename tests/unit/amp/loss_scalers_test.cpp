#include "lockstep/amp/loss_scalers.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

at::Tensor weight_of_one() { return torch::ones({1}, at::TensorOptions().requires_grad(true)); }

TEST(LossScalers, EachLossHasAScaleOfItsOwn) {
  const at::Tensor weight = weight_of_one();
  torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1));
  LossScalers scalers({weight}, 2, {.init_scale = 4, .growth_interval = 1});
  const float infinity = std::numeric_limits<float>::infinity();

  scalers.backward((weight * 2).sum(), 0);
  EXPECT_EQ(weight.grad().item<float>(), 2) << "unscaled";
  scalers.backward((weight * 3).sum(), 1);
  EXPECT_EQ(weight.grad().item<float>(), 5) << "added to the other's";
  EXPECT_TRUE(scalers.step(sgd));
  scalers.update();
  EXPECT_EQ(weight.item<float>(), -4);
  EXPECT_EQ(scalers.scaler(0).get_scale(), 8);

  sgd.zero_grad();
  scalers.backward((weight * 2).sum(), 0);
  scalers.backward((weight * infinity).sum(), 1);
  EXPECT_FALSE(scalers.step(sgd)) << "one loss is enough";
  scalers.update();
  EXPECT_EQ(weight.item<float>(), -4);
  EXPECT_EQ(scalers.scaler(0).get_scale(), 16);
  EXPECT_EQ(scalers.scaler(1).get_scale(), 4);

  sgd.zero_grad();
  scalers.backward((weight * 2).sum(), 0);
  EXPECT_TRUE(scalers.step(sgd)) << "the other loss had no backward";
  scalers.update();
  EXPECT_EQ(scalers.scaler(0).get_scale(), 32);
  EXPECT_EQ(scalers.scaler(1).get_scale(), 4);
}

TEST(LossScalers, LossesMayTrainDifferentParameters) {
  const at::Tensor one = weight_of_one(), other = weight_of_one();
  LossScalers scalers({one, other}, 2);
  scalers.backward((one * 2).sum(), 0);
  scalers.backward((other * 3).sum(), 1);
  EXPECT_EQ(one.grad().item<float>(), 2);
  EXPECT_EQ(other.grad().item<float>(), 3);
}

TEST(LossScalers, RefusesWhatHasNoMeaning) {
  const at::Tensor weight = weight_of_one();
  EXPECT_THROW(LossScalers({weight}, 0), UsageError);
  LossScalers scalers({weight}, 2);
  EXPECT_THROW(scalers.backward((weight * 2).sum(), 2), UsageError);
  EXPECT_THROW(scalers.backward((weight * 2).sum(), -1), UsageError);
  scalers.backward((weight * 2).sum(), 1);
  EXPECT_THROW(scalers.backward((weight * 2).sum(), 1), UsageError) << "its gradients are there";
}

}  // namespace
}  // namespace lockstep::amp
