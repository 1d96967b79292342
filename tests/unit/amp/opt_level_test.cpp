#include "lockstep/amp/opt_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/what_of.h"

namespace lockstep::amp {
namespace {

using support::what_of;
using ::testing::HasSubstr;

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
}

TEST(OptLevel, O0IsFloat32) {
  auto net = small_net();
  net->to(at::kDouble);
  const Precision precision = initialize(*net, "O0");
  EXPECT_EQ(precision.amp, Amp::none);
  EXPECT_FALSE(precision.scaler.enabled);
  for (const at::Tensor& parameter : net->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST(OptLevel, O1AndO2AreAutocastWithADynamicScale) {
  for (const char* level : {"O1", "O2"}) {
    auto net = small_net();
    const Precision precision = initialize(*net, level);
    EXPECT_EQ(precision.amp, Amp::fp16);
    EXPECT_TRUE(precision.scaler.enabled);
    // Apex's LossScaler: 2^16, doubled after 2000 steps without overflow, at most 2^24.
    EXPECT_EQ(precision.scaler.init_scale, 65536);
    EXPECT_EQ(precision.scaler.growth_factor, 2);
    EXPECT_EQ(precision.scaler.growth_interval, 2000);
    EXPECT_EQ(precision.scaler.max_scale, 16777216);
    for (const at::Tensor& parameter : net->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat) << "masters";

    EXPECT_EQ(initialize(*net, level, {.max_loss_scale = 512}).scaler.init_scale, 512);
    EXPECT_EQ(initialize(*net, level, {.min_loss_scale = 0x1p20}).scaler.init_scale, 0x1p20);
    const Precision bf16 = initialize(*net, level, {.cast_model_type = Amp::bf16});
    EXPECT_EQ(bf16.amp, Amp::bf16);
    EXPECT_FALSE(bf16.scaler.enabled);
  }
}

TEST(OptLevel, O3CastsTheModelAndBatchNormUnlessKept) {
  auto all = small_net();
  const Precision precision = initialize(*all, "O3");
  EXPECT_EQ(precision.amp, Amp::none);
  EXPECT_FALSE(precision.scaler.enabled);
  for (const at::Tensor& parameter : all->parameters()) EXPECT_EQ(parameter.scalar_type(), at::kHalf);
  EXPECT_EQ(all->named_buffers()["1.running_var"].scalar_type(), at::kHalf);
  EXPECT_EQ(all->named_buffers()["1.num_batches_tracked"].scalar_type(), at::kLong);

  auto kept = small_net();
  initialize(*kept, "O3", {.cast_model_type = Amp::bf16, .keep_batchnorm_fp32 = true});
  EXPECT_EQ(kept->named_parameters()["0.weight"].scalar_type(), at::kBFloat16);
  EXPECT_EQ(kept->named_parameters()["1.weight"].scalar_type(), at::kFloat);
  EXPECT_EQ(kept->named_buffers()["1.running_var"].scalar_type(), at::kFloat);
  EXPECT_EQ(kept->forward(torch::ones({2, 3}, at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST(OptLevel, AFixedScaleStays) {
  auto net = small_net();
  const GradScalerOptions scaler = initialize(*net, "O2", {.loss_scale = 128}).scaler;
  EXPECT_TRUE(scaler.enabled);
  EXPECT_EQ(next({.scale = 128}, true, scaler).scale, 128);
  EXPECT_EQ(next({.scale = 128, .growth_tracker = 1999}, false, scaler).scale, 128);
  EXPECT_FALSE(initialize(*net, "O1", {.loss_scale = 1}).scaler.enabled);
}

TEST(OptLevel, RefusesWhatALevelCannotHave) {
  auto net = small_net();
  const auto refused = [&](const char* level, const InitializeOptions& options = {}) {
    return what_of([&] { initialize(*net, level, options); });
  };
  EXPECT_THAT(refused("01"), HasSubstr("opt_level is '01', must be O0, O1, O2 or O3 (a letter and a digit)"));
  EXPECT_THAT(refused("O1", {.cast_model_type = Amp::none}), HasSubstr("must be fp16 or bf16"));
  EXPECT_THAT(refused("O2", {.keep_batchnorm_fp32 = false}), HasSubstr("keep_batchnorm_fp32 is false with O2"));
}

}  // namespace
}  // namespace lockstep::amp
