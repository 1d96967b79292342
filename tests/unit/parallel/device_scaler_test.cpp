// A GradScaler with fused optimizers on a device, which is a stand-in here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "lockstep/amp/fused_optimizers.h"
#include "lockstep/amp/grad_scaler.h"
#include "tests/support/device/sim_device.h"
#include "tests/support/scaled_job.h"
#include "tests/support/usage_error.h"

namespace lockstep::amp {
namespace {

namespace sim = lockstep::testing::sim;
using lockstep::testing::usage_error;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr float kTooMuch = std::numeric_limits<float>::infinity();

class DeviceScaler : public ::testing::Test {
 protected:
  void SetUp() override { sim::install(); }
};

// A weight of ones, whose gradient is the factor.
template <class Optimizer>
struct One {
  at::Tensor weight = torch::ones({2}, sim::device(1)).requires_grad_();
  Optimizer optimizer{{weight}, torch::optim::SGDOptions(1)};
  void backward(const GradScaler& scaler, float factor) {
    optimizer.zero_grad();
    scaler.scale((weight * factor).sum()).backward();
  }
  bool has(float value) const { return torch::equal(weight.detach().cpu(), torch::full({2}, value)); }
};
using Fused = One<FusedSGD>;
using Plain = One<torch::optim::SGD>;

template <class Optimizer, class Options>
std::map<std::string, int> waits_of_steady_steps(const Options& options) {
  const at::Device device = sim::device(1);
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
  model->to(device);
  Optimizer optimizer(model->parameters(), options);
  GradScaler scaler({.growth_interval = 2});
  const at::Tensor batch = torch::randn({4, 6}).to(device);
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.scale(model->forward(batch).pow(2).mean()).backward();
    scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
  };
  step();  // begins the state
  std::map<std::string, int> waits;
  {
    const sim::Recording recording;
    for (int i = 0; i < 3; ++i) step();
    const sim::Report report = recording.report();
    EXPECT_EQ(report.text(), "");
    EXPECT_GT(recording.history().size(), 30U);
    waits = report.host_waits;
  }
  EXPECT_EQ(scaler.get_scale(), 4 * 65536) << "of four steps every second one has let it grow";
  return waits;
}

TEST_F(DeviceScaler, KeepsTheHostWaitingInNoSteadyStep) {
  using namespace torch::optim;
  EXPECT_THAT(waits_of_steady_steps<FusedSGD>(SGDOptions(0.01)), IsEmpty());
  EXPECT_THAT(waits_of_steady_steps<FusedSGD>(SGDOptions(0.01).momentum(0.9)), IsEmpty());
  EXPECT_THAT(waits_of_steady_steps<FusedAdam>(AdamOptions(0.01).amsgrad(true)), IsEmpty());
  EXPECT_THAT(waits_of_steady_steps<FusedAdamW>(AdamWOptions(0.01)), IsEmpty());
  EXPECT_THAT(waits_of_steady_steps<SGD>(SGDOptions(0.01)), Not(IsEmpty())) << "which the host has to be told of";
}

template <class Optimizer, class Options>
void expect_as_on_the_host(const Options& options) {
  const GradScalerOptions scaling{.init_scale = 1024, .growth_interval = 3};
  const support::Scaled there = support::train_scaled<Optimizer>(options, scaling, sim::device(1));
  const support::Scaled here = support::train_scaled<Optimizer>(options, scaling);
  EXPECT_EQ(there.scales, here.scales);
  EXPECT_TRUE(torch::equal(there.weight, here.weight)) << (there.weight - here.weight).abs().max();
}

TEST_F(DeviceScaler, StepsAndScalesAsOnTheHost) {
  using namespace torch::optim;
  expect_as_on_the_host<FusedSGD>(SGDOptions(0.01).momentum(0.9).dampening(0.5));
  expect_as_on_the_host<FusedAdam>(AdamOptions(0.01).amsgrad(true));
  expect_as_on_the_host<FusedAdamW>(AdamWOptions(0.01));
}

TEST_F(DeviceScaler, TellsWhoAsks) {
  Fused fused;
  GradScaler scaler({.init_scale = 4});
  fused.backward(scaler, kTooMuch);
  EXPECT_FALSE(scaler.step(fused.optimizer));
  EXPECT_FALSE(fused.optimizer.found_inf.defined()) << "for the length of a step";
  EXPECT_TRUE(fused.has(1));
  EXPECT_EQ(scaler.found_inf(), true);
  EXPECT_EQ(scaler.get_scale(), 4) << "until update()";
  scaler.update();
  EXPECT_EQ(scaler.found_inf(), std::nullopt);
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.overflowed(), "a gradient on " + sim::device(1).str());
  fused.backward(scaler, 0.25);
  EXPECT_TRUE(scaler.step(fused.optimizer));
  EXPECT_TRUE(fused.has(0.75));
  EXPECT_EQ(scaler.found_inf(), false);
  scaler.update();
  EXPECT_EQ(scaler.overflowed(), "");
  EXPECT_EQ(scaler.state_dict().growth_tracker, 1);
  scaler.load_state_dict({.scale = 8});
  EXPECT_EQ(scaler.get_scale(), 8);
}

TEST_F(DeviceScaler, OfSeveralOptimizersEachIsSkippedForItsOwn) {
  Fused first, second;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  first.backward(scaler, 0.25);
  second.backward(scaler, kTooMuch);
  EXPECT_TRUE(scaler.step(first.optimizer));
  EXPECT_FALSE(scaler.step(second.optimizer));
  scaler.update();
  EXPECT_TRUE(first.has(0.75));
  EXPECT_TRUE(second.has(1));
  EXPECT_EQ(scaler.get_scale(), 2) << "one is enough";
}

TEST_F(DeviceScaler, RefusesWhatPythonsRefusesBetweenTwoUpdates) {
  Fused fused;
  GradScaler scaler({.init_scale = 4});
  fused.backward(scaler, 0.25);
  scaler.unscale_(fused.optimizer);
  EXPECT_EQ(usage_error([&] { scaler.unscale_(fused.optimizer); }),
            "GradScaler: unscale_() of this optimizer again before update()");
  scaler.step(fused.optimizer);
  EXPECT_EQ(usage_error([&] { scaler.step(fused.optimizer); }),
            "GradScaler: step() of this optimizer again before update()");
  EXPECT_EQ(usage_error([&] { scaler.unscale_(fused.optimizer); }),
            "GradScaler: unscale_() of an optimizer behind its step(); update() comes first");
  EXPECT_TRUE(fused.has(0.75));
}

// What the device has found so far goes to the host with the scale.
TEST_F(DeviceScaler, AnOptimizerThatTheHostStepsTakesTheRoundToTheHost) {
  Fused fused;
  Plain plain;
  GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  fused.backward(scaler, kTooMuch);
  plain.backward(scaler, 0.25);
  scaler.unscale_(fused.optimizer);
  EXPECT_TRUE(scaler.step(plain.optimizer));
  EXPECT_FALSE(scaler.step(fused.optimizer));
  scaler.update();
  EXPECT_TRUE(fused.has(1));
  EXPECT_TRUE(plain.has(0.75));
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.overflowed(), "a gradient on " + sim::device(1).str());
  fused.backward(scaler, 0.25);
  EXPECT_TRUE(scaler.step(fused.optimizer)) << "of a round of its own, on the device again";
  scaler.update();
  EXPECT_TRUE(fused.has(0.75));
  EXPECT_EQ(scaler.get_scale(), 4);
}

// CUDA has no kernel that unscales it.
TEST_F(DeviceScaler, OfGradientsInBFloat16TheHostDecides) {
  const at::TensorOptions options = at::TensorOptions(sim::device(1)).dtype(at::kBFloat16);
  const at::Tensor weight = torch::ones({2}, options).requires_grad_();
  FusedSGD optimizer({weight}, torch::optim::SGDOptions(1));
  GradScaler scaler({.init_scale = 4});
  scaler.scale((weight * kTooMuch).sum()).backward();
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.overflowed(), "a parameter of sizes [2]");
  EXPECT_EQ(scaler.get_scale(), 2);
}

TEST_F(DeviceScaler, KeptBytesAreThoseBehindUpdate) {
  Fused fused;
  GradScaler scaler({.init_scale = 4});
  const auto step = [&](float factor) {
    fused.backward(scaler, factor);
    scaler.step(fused.optimizer);
    scaler.update();
  };
  step(kTooMuch);
  const std::span<std::byte> kept = scaler.kept();
  const auto expect_kept = [&](double scale, std::int64_t growth_tracker) {
    ScalerState state;
    ASSERT_EQ(kept.size(), sizeof state);
    std::memcpy(&state, kept.data(), sizeof state);
    EXPECT_EQ(state.scale, scale);
    EXPECT_EQ(state.growth_tracker, growth_tracker);
  };
  expect_kept(2, 0);
  step(0.25);
  expect_kept(2, 1);
  step(kTooMuch);
  expect_kept(1, 0);
}

TEST_F(DeviceScaler, ALossKeepsTheScaleThatItHasBeenScaledBy) {
  Fused fused, late;
  GradScaler scaler({.init_scale = 4});
  fused.backward(scaler, 0.25);
  scaler.step(fused.optimizer);
  scaler.update();
  const at::Tensor loss = scaler.scale((late.weight * 0.5).sum());
  fused.backward(scaler, kTooMuch);
  scaler.step(fused.optimizer);
  scaler.update();
  loss.backward();
  EXPECT_TRUE(torch::equal(late.weight.grad().cpu(), torch::full({2}, 2.0F)));
}

}  // namespace
}  // namespace lockstep::amp
