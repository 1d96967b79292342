#include "lockstep/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

// Stands for the engine: remembers what it was asked to do.
struct RecordingTarget final : Target {
  void attach(const Needs& needs) override {
    arrays = needs.arrays;
    groups = needs.groups;
  }
  std::uint64_t next_step() const override { return step; }
  void apply(const Rules& rules, const StepOptions&) override {
    applied.push_back(rules({.group = 0, .step = step}));
    ++step;
  }
  void discard_gradients() override { ++discarded; }

  int arrays = -1;
  int groups = -1;
  std::uint64_t step = 1;
  int discarded = 0;
  std::vector<Rule> applied;
};

TEST(Optimizer, AsksForTheStateItsOptionsNeed) {
  RecordingTarget plain, momentum, adam;
  SGD a(plain);
  SGD b(momentum, {.momentum = 0.9});
  Adam c(adam);
  EXPECT_EQ(plain.arrays, 0);
  EXPECT_EQ(momentum.arrays, 1);
  EXPECT_EQ(adam.arrays, 2);
  EXPECT_EQ(adam.groups, 1);
}

TEST(Optimizer, RefusesOptionsOutOfRange) {
  RecordingTarget target;
  EXPECT_THROW(SGD(target, {.lr = -1}), UsageError);
  EXPECT_THROW(SGD(target, {.momentum = -0.1}), UsageError);
  EXPECT_THROW(SGD(target, {.nesterov = true}), UsageError);
  EXPECT_THROW(SGD(target, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), UsageError);
  EXPECT_THROW(Adam(target, AdamOptions{.betas = {1, 0.999}}), UsageError);
  EXPECT_THROW(Adam(target, AdamOptions{.betas = {0.9, -0.1}}), UsageError);
  EXPECT_THROW(Adam(target, {.eps = -1e-8}), UsageError);
  EXPECT_THROW(AdamW(target, {.weight_decay = -1}), UsageError);
  EXPECT_EQ(target.arrays, -1) << "attached before the options were checked";
}

TEST(Optimizer, TheMomentumBufferStartsAtTheFirstStepOnly) {
  RecordingTarget target;
  SGD optimizer(target, {.momentum = 0.9, .dampening = 0.25});
  optimizer.step();
  optimizer.step();
  EXPECT_TRUE(std::get<SGDRule>(target.applied[0]).first);
  EXPECT_FALSE(std::get<SGDRule>(target.applied[1]).first);
  EXPECT_EQ(std::get<SGDRule>(target.applied[1]).gradient_weight, 0.75f);
}

// Weights that were updated before, by whatever step the job is at, are in no first step.
TEST(Optimizer, TheRuleIsThatOfTheStepOfItsWeights) {
  RecordingTarget target;
  target.step = 8;
  SGD momentum(target, {.momentum = 0.9});
  momentum.step();
  EXPECT_FALSE(std::get<SGDRule>(target.applied[0]).first);
  Adam adam(target, {.lr = 0.1});
  adam.step();
  EXPECT_EQ(std::get<AdamRule>(target.applied[1]).negative_step_size,
            rule_for(AdamOptions{.lr = 0.1}, 9).negative_step_size);
}

TEST(Optimizer, BiasCorrectionIsAFunctionOfTheStep) {
  const AdamRule first = rule_for(AdamOptions{.lr = 0.1}, 1);
  EXPECT_FLOAT_EQ(first.negative_step_size, -1.0f);
  EXPECT_FLOAT_EQ(first.bias_correction2_sqrt, float(std::sqrt(0.001)));
  const AdamRule late = rule_for(AdamOptions{.lr = 0.1}, 100'000);
  EXPECT_FLOAT_EQ(late.negative_step_size, -0.1f);
  EXPECT_EQ(rule_for(AdamWOptions{.lr = 0.1, .weight_decay = 0.5}, 1).decoupled_decay, 0.95f);
  EXPECT_EQ(rule_for(AdamWOptions{}, 1).weight_decay, 0.0f);
}

TEST(Optimizer, LearningRateChangesTakeEffectAtTheNextStep) {
  RecordingTarget target;
  SGD optimizer(target, {.lr = 1});
  optimizer.step();
  optimizer.set_lr(0.5);
  optimizer.step();
  EXPECT_EQ(std::get<SGDRule>(target.applied[0]).negative_lr, -1.0f);
  EXPECT_EQ(std::get<SGDRule>(target.applied[1]).negative_lr, -0.5f);
  EXPECT_THROW(optimizer.set_lr(-2), UsageError);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(Optimizer, RefusesANegativeNorm) {
  RecordingTarget target;
  SGD optimizer(target);
  EXPECT_THROW(optimizer.step({.max_norm = -1}), UsageError);
  EXPECT_TRUE(target.applied.empty());
}

TEST(Optimizer, ZeroGradDiscards) {
  RecordingTarget target;
  SGD optimizer(target);
  optimizer.zero_grad();
  EXPECT_EQ(target.discarded, 1);
}

}  // namespace
}  // namespace lockstep::optim
