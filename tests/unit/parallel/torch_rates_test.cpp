// Schedules of optimizers of torch::optim.

#include "lockstep/parallel/torch_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim.h"

namespace lockstep::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor rated_weight() { return torch::ones({2}, at::TensorOptions().requires_grad(true)); }

double rate_of(torch::optim::Optimizer& optimizer, std::size_t group) {
  return optimizer.param_groups()[group].options().get_lr();
}

// As Python's StepLR, by the rate that each group was made with, whatever it has been meanwhile.
TEST(TorchRates, EachGroupFromTheRateThatItWasMadeWith) {
  const at::Tensor first = rated_weight(), second = rated_weight();
  std::vector<torch::optim::OptimizerParamGroup> groups = {{{first}}, {{second}}};
  groups[1].set_options(std::make_unique<torch::optim::SGDOptions>(0.5));
  torch::optim::SGD sgd(groups, torch::optim::SGDOptions(0.25));
  TorchRates rates(sgd);
  const optim::Schedule schedule = optim::StepLR{.step_size = 2, .gamma = 0.5};
  for (const int t : {3, 0, 2}) rates.set_lr(schedule, std::uint64_t(t));
  EXPECT_EQ(rate_of(sgd, 0), 0.125);
  EXPECT_EQ(rate_of(sgd, 1), 0.25);
  (first.sum() + second.sum()).backward();
  sgd.step();
  EXPECT_EQ(first[0].item<float>(), 0.875);
  EXPECT_EQ(second[0].item<float>(), 0.75);

  const std::vector<optim::Schedule> schedules = {optim::ConstantLR{.factor = 1}, schedule};
  rates.set_lr(schedules, 2);
  EXPECT_EQ(rate_of(sgd, 0), 0.25);
  EXPECT_EQ(rate_of(sgd, 1), 0.25);
  EXPECT_THAT([&] { rates.set_lr(std::span(schedules).first(1), 2); },
              ThrowsMessage<UsageError>(HasSubstr("1 schedules for 2 parameter groups")));
}

TEST(TorchRates, MomentumIsThatOfTheKindOfOptimizer) {
  const optim::Schedule schedule = optim::OneCycleLR{.max_lr = 0.1, .total_steps = 100};
  const optim::Rate rate = schedule.at(0.3, 40);
  const auto scheduled = [&](auto&& optimizer) {
    TorchRates(optimizer).set_lr(schedule, 40);
    EXPECT_EQ(rate_of(optimizer, 0), rate.lr);
    return optimizer.param_groups()[0].options().clone();
  };
  namespace to = torch::optim;
  const auto sgd = scheduled(to::SGD({rated_weight()}, to::SGDOptions(0.3).momentum(0.9)));
  EXPECT_EQ(static_cast<to::SGDOptions&>(*sgd).momentum(), *rate.momentum);
  const auto rmsprop = scheduled(to::RMSprop({rated_weight()}, to::RMSpropOptions(0.3)));
  EXPECT_EQ(static_cast<to::RMSpropOptions&>(*rmsprop).momentum(), *rate.momentum);
  const auto adam = scheduled(to::Adam({rated_weight()}, to::AdamOptions(0.3)));
  EXPECT_EQ(static_cast<to::AdamOptions&>(*adam).betas(), std::tuple(*rate.momentum, 0.999));
  const auto adamw = scheduled(to::AdamW({rated_weight()}, to::AdamWOptions(0.3)));
  EXPECT_EQ(static_cast<to::AdamWOptions&>(*adamw).betas(), std::tuple(*rate.momentum, 0.999));
}

TEST(TorchRates, RefusesWhatTheOptimizerCannotHave) {
  torch::optim::Adagrad adagrad({rated_weight()}, torch::optim::AdagradOptions(0.5));
  TorchRates rates(adagrad);
  EXPECT_THAT([&] { rates.set_lr(optim::OneCycleLR{.max_lr = 0.1, .total_steps = 9}, 1); },
              ThrowsMessage<UsageError>(HasSubstr("momentum")));
  EXPECT_THAT([&] { rates.set_lr([](double, std::uint64_t) { return -1.0; }, 1); },
              ThrowsMessage<UsageError>(HasSubstr("lr is -1")));
  EXPECT_EQ(rate_of(adagrad, 0), 0.5);
  adagrad.add_param_group({{rated_weight()}});
  EXPECT_THAT([&] { rates.set_lr(optim::ConstantLR{}, 1); },
              ThrowsMessage<UsageError>(HasSubstr("2 groups, and had 1")));
}

}  // namespace
}  // namespace lockstep::parallel
