// The fused optimizers and clipping on a GPU, beside torch::optim's and libtorch's.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/amp/clip_grad_norm.h"
#include "lockstep/amp/fused_optimizers.h"
#include "lockstep/amp/grad_scaler.h"
#include "lockstep/device/choice.h"
#include "lockstep/device/deterministic.h"
#include "tests/support/ranks.h"
#include "tests/support/scaled_job.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::SharedText;

class OptimizersOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    SharedText why;
    support::run_ranks(RankKind::processes, 1, [&](const auto&) { why.set(device::why_none(device::find_cuda())); });
    if (!why.get().empty()) GTEST_SKIP() << why.get();
  }
};

at::Device the_gpu() {
  const at::Device device = device::choose("cuda:0", 0);
  device::compute_deterministically();
  return device;
}

// `scaled`: with a GradScaler whose first scale overflows, so that a step is left out.
template <class Optimizer, class Options>
std::vector<at::Tensor> trained(at::Device device, const Options& options, bool scaled) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)), torch::nn::ReLU(),
                              torch::nn::Flatten(), torch::nn::Linear(8 * 36, 5));
  model->to(device);
  const at::Tensor filters = model->parameters().front();
  filters.set_data(filters.contiguous(at::MemoryFormat::ChannelsLast));
  Optimizer optimizer(model->parameters(), options);
  GradScaler scaler({.init_scale = 3e38, .backoff_factor = 1e-30, .enabled = scaled});
  for (int step = 0; step < 20; ++step) {
    torch::manual_seed(100 + step);  // drawn on the host: a GPU draws others
    const at::Tensor data = torch::randn({16, 3, 8, 8}), target = torch::randint(5, {16}, torch::kLong);
    optimizer.zero_grad();
    const at::Tensor output = model->forward(data.to(device));
    scaler.scale(torch::nn::functional::cross_entropy(output, target.to(device)) * 10).backward();
    scaler.unscale_(optimizer);
    clip_grad_norm_(model->parameters(), 1.0);
    scaler.step(optimizer);
    scaler.update();
  }
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model->parameters()) weights.push_back(parameter.detach().cpu().clone());
  return weights;
}

template <class Fused, class Unfused, class Options>
void expect_the_same(const Options& options) {
  for (const bool scaled : {false, true}) {
    const auto ours = trained<Fused>(the_gpu(), options, scaled), theirs = trained<Unfused>(the_gpu(), options, scaled),
               here = trained<Fused>(at::kCPU, options, scaled);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-4, 1e-5)) << (ours[i] - theirs[i]).abs().max();
      EXPECT_TRUE(torch::allclose(ours[i], here[i], 1e-2, 2e-3)) << (ours[i] - here[i]).abs().max();
    }
  }
}

TEST_F(OptimizersOnAGpu, StepAsThoseOfTorch) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    using namespace torch::optim;
    expect_the_same<FusedSGD, SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
    expect_the_same<FusedAdam, Adam>(AdamOptions(1e-3).amsgrad(true));
    expect_the_same<FusedAdamW, AdamW>(AdamWOptions(1e-3));
  });
}

TEST_F(OptimizersOnAGpu, ClipToTheNormOfLibtorch) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    std::vector<at::Tensor> ours, theirs;
    const at::Device device = the_gpu();
    torch::manual_seed(2);
    for (const std::int64_t size : {3, 1000, 40'000}) {
      const at::Tensor gradient = torch::randn({size}).to(device);
      for (auto* const each : {&ours, &theirs}) {
        each->push_back(torch::zeros({size}, device).requires_grad_());
        each->back().mutable_grad() = gradient.clone();
      }
    }
    const at::Tensor norm = clip_grad_norm_(ours, 2.0);
    EXPECT_TRUE(norm.device() == device);
    EXPECT_NEAR(norm.item<double>(), torch::nn::utils::clip_grad_norm_(theirs, 2.0), 1e-2);
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad()));
  });
}

TEST_F(OptimizersOnAGpu, TheScaleGoesAsOnTheCpu) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const at::Device device = the_gpu();
    const auto options = torch::optim::SGDOptions(0.01).momentum(0.9);
    for (const GradScalerOptions& scaling :
         {GradScalerOptions{.init_scale = 1024, .growth_interval = 3},
          GradScalerOptions{.init_scale = 1024, .growth_interval = (std::int64_t(1) << 32) + 1},
          GradScalerOptions{.init_scale = 3, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 5},
          GradScalerOptions{.init_scale = 64, .growth_interval = 2, .min_scale = 50, .max_scale = 100}}) {
      const support::Scaled there = support::train_scaled<FusedSGD>(options, scaling, device);
      const support::Scaled here = support::train_scaled<torch::optim::SGD>(options, scaling);
      EXPECT_EQ(there.scales, here.scales);
      EXPECT_TRUE(torch::allclose(there.weight, here.weight, 1e-4, 1e-5)) << (there.weight - here.weight).abs().max();
    }
  });
}

// The device counts Adam's steps, of which it leaves the first two and some more out.
TEST_F(OptimizersOnAGpu, AdamCountsTheStepsThatWereMade) {
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    const torch::optim::AdamOptions options(0.01);
    const GradScalerOptions scaling{.init_scale = 1024};
    const support::Scaled there = support::train_scaled<FusedAdam>(options, scaling, the_gpu());
    const support::Scaled here = support::train_scaled<torch::optim::Adam>(options, scaling);
    EXPECT_EQ(there.scales, here.scales);
    EXPECT_TRUE(torch::allclose(there.weight, here.weight, 1e-4, 1e-5)) << (there.weight - here.weight).abs().max();
  });
}

}  // namespace
}  // namespace lockstep
