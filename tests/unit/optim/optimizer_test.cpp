#include "lockstep/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim/schedules/factors.h"
#include "lockstep/optim/schedules/plateau.h"

namespace lockstep::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Stands for the engine: remembers what it was asked to do.
struct RecordingTarget final : Target {
  std::vector<Parameter> parameters() const override { return named; }
  void attach(const Needs& needs) override {
    arrays = needs.arrays;
    groups = needs.groups;
    group_of = needs.group_of;
    kind = needs.kind;
  }
  std::uint64_t next_step() const override { return step; }
  void apply(const Rules& rules, const StepOptions&) override {
    for (int group = 0; group < groups; ++group) applied.push_back(rules({.group = group, .step = step}));
    ++step;
  }
  void discard_gradients() override { ++discarded; }

  std::vector<Parameter> named = {{"weight", &step}, {"bias", &discarded}};
  int arrays = -1;
  int groups = -1;
  std::vector<int> group_of;
  std::string kind;
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

// Tensors, as far as groups look at them.
struct FakeTensor {
  const void* identity;
  bool trained = true;
  const void* unsafeGetTensorImpl() const { return identity; }
  bool requires_grad() const { return trained; }
};

TEST(ParamGroups, TakeFromTheOptimizerWhatTheyWereNotGiven) {
  RecordingTarget target;
  SGD optimizer(target, {{"bias", {.lr = 0.5, .momentum = 0}}, {"*"}},
                {.lr = 0.25, .momentum = 0.9, .weight_decay = 0.1});
  EXPECT_EQ(target.groups, 2);
  EXPECT_EQ(target.group_of, (std::vector<int>{1, 0}));
  EXPECT_EQ(target.arrays, 1);
  optimizer.step();
  const auto& bias = std::get<SGDRule>(target.applied[0]);
  const auto& rest = std::get<SGDRule>(target.applied[1]);
  EXPECT_EQ(bias.negative_lr, -0.5f);
  EXPECT_EQ(bias.momentum, 0.0f) << "given, though it is the default";
  EXPECT_EQ(bias.weight_decay, 0.1f);
  EXPECT_EQ(rest.negative_lr, -0.25f);
  EXPECT_EQ(rest.momentum, 0.9f);
}

TEST(ParamGroups, AreNamedByTensorsToo) {
  RecordingTarget target;
  const int frozen = 0;
  Adam optimizer(target, {{std::vector<FakeTensor>{{&target.discarded}, {&frozen, false}}, {.betas = {0.8, 0.9}}},
                          {std::vector<FakeTensor>{{&target.step}}}});
  EXPECT_EQ(target.group_of, (std::vector<int>{1, 0}));
  EXPECT_EQ(*optimizer.param_groups()[0].options.betas, (Betas{0.8, 0.9}));
  EXPECT_EQ(*optimizer.param_groups()[1].options.betas, (Betas{0.9, 0.999}));
}

TEST(ParamGroups, MayHaveSeveralNames) {
  RecordingTarget target;
  Adam optimizer(target, {{{"weight", "bias"}, {.lr = 0.5}}});
  EXPECT_EQ(optimizer.param_groups().size(), 1u);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(ParamGroups, ReferencesToThemHold) {
  RecordingTarget target;
  SGD optimizer(target, {{"bias", {.lr = 1}}, {"*"}});
  auto& head = optimizer.param_groups()[0];
  optimizer.set_lr(Schedule(StepLR{.step_size = 1, .gamma = 0.5}), 1);
  EXPECT_EQ(*head.options.lr, 0.5);
  head.options.lr = 4;
  optimizer.step();
  EXPECT_EQ(std::get<SGDRule>(target.applied[0]).negative_lr, -4.0f);
}

TEST(ParamGroups, StateOfOneMeaningIsNotTakenForAnother) {
  RecordingTarget target, other, third;
  RMSprop centered(target, {.centered = true});
  centered.param_groups()[0].options.centered = false;
  centered.param_groups()[0].options.momentum = 0.9;
  EXPECT_THROW(centered.step(), UsageError) << "as many arrays";
  RMSprop momentum(other, {.momentum = 0.9});
  EXPECT_NE(target.kind, other.kind);
  Adadelta adadelta(third);
  EXPECT_NE(third.kind, other.kind);
}

TEST(ParamGroups, MayBeMadeAtRunTime) {
  RecordingTarget target;
  std::vector<ParamGroup<AdamWOptions>> groups;
  for (const Parameter& parameter : target.named) groups.push_back({parameter.name, {.lr = 0.1}});
  AdamW optimizer(target, groups);
  EXPECT_EQ(target.group_of, (std::vector<int>{0, 1}));
}

TEST(ParamGroups, OptionsAreSetBetweenSteps) {
  RecordingTarget target;
  RMSprop optimizer(target, {{"bias", {.momentum = 0.5}}, {"*"}});
  optimizer.param_groups()[1].options.lr = 0.125;
  optimizer.step();
  EXPECT_EQ(std::get<RMSpropRule>(target.applied[1]).negative_lr, -0.125f);
  optimizer.param_groups()[1].options.lr = -1;
  EXPECT_THROW(optimizer.step(), UsageError);
  optimizer.set_lr(2);
  EXPECT_EQ(*optimizer.param_groups()[0].options.lr, 2);
  optimizer.param_groups()[0].options.momentum = 0;
  EXPECT_THROW(optimizer.step(), UsageError) << "the momentum buffer would be left behind";
  EXPECT_EQ(target.step, 2u);
}

std::string refusal(const std::vector<Params>& groups) {
  try {
    const RecordingTarget target;
    groups_of(target.named, groups);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(ParamGroups, WhatIsNowhereOrFitsNothingIsRefusedByName) {
  const int other = 0;
  EXPECT_EQ(refusal({"bias", "weight"}), "");
  EXPECT_THAT(refusal({"bias"}), HasSubstr("parameter 'weight' is in no group"));
  EXPECT_THAT(refusal({"weights", "*"}),
              HasSubstr("parameter group 0: unknown parameter 'weights': did you mean 'weight'"));
  EXPECT_THAT(refusal({"*", "bias"}), HasSubstr("parameter group 1 has no parameters"));
  EXPECT_THAT(refusal({std::vector<FakeTensor>{{&other}}, "*"}), HasSubstr("group 0: tensor 0 is no parameter"));
  EXPECT_THAT(refusal({}), HasSubstr("no parameter groups"));
  EXPECT_THAT(refusal({std::vector<FakeTensor>{{&other, false}}, "*"}),
              HasSubstr("group 0 names no parameter that is trained: the list is empty, or requires_grad is false"));
}

TEST(Options, OfEveryRuleAreLookedAt) {
  RecordingTarget target;
  EXPECT_THROW(RMSprop(target, {.alpha = -1}), UsageError);
  EXPECT_THROW(Adagrad(target, {.initial_accumulator_value = -1}), UsageError);
  EXPECT_THROW(Adadelta(target, {.rho = 1.5}), UsageError);
  EXPECT_THROW(NAdam(target, {.momentum_decay = -1}), UsageError);
  EXPECT_THROW(RAdam(target, {.betas = {0.9, 1}}), UsageError);
  EXPECT_THROW(Lion(target, {.lr = -1}), UsageError);
  EXPECT_THROW(LARS(target, {.trust_coefficient = -1}), UsageError);
  EXPECT_THROW(LARS(target, {.nesterov = true}), UsageError);
  EXPECT_THROW(LAMB(target, {.eps = 0}), UsageError);
}

TEST(Options, MayBeSpelledAsNumbersAre) {
  RecordingTarget target;
  SGD defaults(target, {});
  EXPECT_EQ(target.group_of, (std::vector<int>{0, 0}));
  defaults.param_groups()[0].options.lr *= 0.5;
  EXPECT_EQ(defaults.lr(), 5e-4);
  defaults.param_groups()[0].options.lr /= 2;
  EXPECT_EQ(defaults.lr(), 2.5e-4);
  EXPECT_TRUE(defaults.param_groups()[0].options.lr.given());
  EXPECT_EQ(AdamOptions{}.betas[1], 0.999);
}

TEST(Options, AreListedByName) {
  std::vector<std::string> given;
  const AdamOptions options{.lr = 0.1, .betas = {0.8, 0.9}, .amsgrad = true};
  for_each_option(options, [&](const char* name, const auto& option) {
    if (option.given()) given.emplace_back(name);
  });
  EXPECT_THAT(given, ElementsAre("lr", "betas", "amsgrad"));
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

TEST(Optimizer, TheRuleOfALateStepIsMadeAtOnce) {
  for (const double beta1 : {0.9, 0.99}) {
    const NAdamRule rule = rule_for(NAdamOptions{.lr = 1, .betas = {beta1, 0.999}}, 1'000'000'000'000);
    EXPECT_EQ(rule.negative_gradient_step, float(-(1 - beta1)));
    EXPECT_EQ(rule.negative_moment_step, float(-beta1));
  }
}

TEST(Optimizer, FollowsASchedule) {
  RecordingTarget target;
  const Schedule halves = StepLR{.step_size = 10, .gamma = 0.5};
  SGD sgd(target, {{"bias", {.lr = 1}}, {"*"}}, {.lr = 0.25, .momentum = 0.9});
  sgd.set_lr(0.125);
  sgd.set_lr(halves, 20);
  EXPECT_EQ(*sgd.param_groups()[0].options.lr, 0.25) << "of the rate that it was made with";
  EXPECT_EQ(*sgd.param_groups()[1].options.lr, 0.0625);
  EXPECT_EQ(*sgd.param_groups()[1].options.momentum, 0.9);
}

TEST(Optimizer, TakesTheMomentumOfAScheduleIfItHasOne) {
  const Schedule both = [](double, std::uint64_t t) { return Rate{.lr = 0.5, .momentum = 0.5 + 0.1 * double(t)}; };
  RecordingTarget first, second, third;
  SGD sgd(first, {.momentum = 0.9});
  sgd.set_lr(both, 1);
  EXPECT_EQ(*sgd.param_groups()[0].options.momentum, 0.6);
  Adam adam(second);
  adam.set_lr(both, 2);
  EXPECT_EQ(*adam.param_groups()[0].options.betas, (Betas{0.7, 0.999}));
  EXPECT_THROW(adam.set_lr(both, 5), UsageError) << "1 is no beta";
  EXPECT_EQ((*adam.param_groups()[0].options.betas)[0], 0.7);
  RecordingTarget fourth;
  SGD without(fourth, {.lr = 0.1});
  EXPECT_THROW(without.set_lr(both, 1), UsageError) << "it has no buffer for one";
  EXPECT_EQ(without.lr(), 0.1);
  without.step();
  Adagrad none(third);
  EXPECT_THROW(none.set_lr(both, 0), UsageError);
  EXPECT_EQ(none.lr(), 1e-2);
}

TEST(Optimizer, RefusesStepOptionsOutOfRange) {
  RecordingTarget target;
  SGD optimizer(target);
  EXPECT_THROW(optimizer.step({.norm_type = 0}), UsageError);
  EXPECT_THROW(optimizer.step({.max_value = -1}), UsageError);
  EXPECT_THROW(optimizer.step({.denominator = -1}), UsageError);
  EXPECT_TRUE(target.applied.empty());
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

TEST(Optimizer, EachGroupMayHaveAScheduleOfItsOwn) {
  RecordingTarget target;
  SGD sgd(target, {{"weight", {.lr = 1}}, {"bias", {.lr = 4}}});
  const std::vector<Schedule> schedules = {ExponentialLR{.gamma = 0.5}, StepLR{.step_size = 2, .gamma = 0.25}};
  sgd.set_lr(schedules, 1);
  EXPECT_EQ(*sgd.param_groups()[0].options.lr, 0.5);
  EXPECT_EQ(*sgd.param_groups()[1].options.lr, 4);
  sgd.set_lr(schedules, 2);
  EXPECT_EQ(*sgd.param_groups()[0].options.lr, 0.25);
  EXPECT_EQ(*sgd.param_groups()[1].options.lr, 1);
  EXPECT_THAT([&] { sgd.set_lr(std::span(schedules).first(1), 3); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("1 schedules for 2 parameter groups")));
  EXPECT_EQ(*sgd.param_groups()[1].options.lr, 1);
}

TEST(Optimizer, APlateauReducesTheRateOfEachGroup) {
  RecordingTarget target;
  SGD sgd(target, {{"weight", {.lr = 1}}, {"bias", {.lr = 4}}});
  ReduceLROnPlateau plateau{.factor = 0.5, .patience = 0};
  for (const double loss : {1, 1}) plateau.step(loss);
  sgd.set_lr(plateau, 0);
  EXPECT_EQ(*sgd.param_groups()[0].options.lr, 0.5);
  EXPECT_EQ(*sgd.param_groups()[1].options.lr, 2);
}

}  // namespace
}  // namespace lockstep::optim
