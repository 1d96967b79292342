// FusedSGD, FusedAdam and FusedAdamW beside the optimizers of torch::optim that they stand for.

#include "lockstep/amp/fused_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/support/usage_error.h"

namespace lockstep::amp {
namespace {

using Tensors = std::vector<at::Tensor>;

// Of several shapes, one with the strides of pictures, one of another dtype, one that never has a gradient.
Tensors parameters() {
  torch::manual_seed(3);
  Tensors made = {torch::randn({40, 7}), torch::randn({5, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast),
                  torch::randn({9}, at::kDouble), torch::randn({6})};
  for (at::Tensor& each : made) each.requires_grad_();
  return made;
}

// Gradients come laid out otherwise than their parameters, now and then, and one of them begins late.
void set_gradients(const Tensors& parameters, int step) {
  torch::manual_seed(100 + step);
  for (std::size_t i = 0; i + 1 < parameters.size(); ++i) {
    at::Tensor gradient = torch::randn(parameters[i].sizes(), parameters[i].options().requires_grad(false));
    if (step % 2 == 0) gradient = at::empty_like(parameters[i]).copy_(gradient).detach();
    if (i != 0 || step > 2) parameters[i].mutable_grad() = gradient;
  }
}

template <class Optimizer, class Options>
std::unique_ptr<Optimizer> made(const Tensors& of, const Options& first, const Options& second) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{of[0], of[1]}, std::make_unique<Options>(first));
  groups.emplace_back(Tensors{of[2], of[3]}, std::make_unique<Options>(second));
  return std::make_unique<Optimizer>(groups, first);
}

void expect_close(const Tensors& found, const Tensors& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], wanted[i], 1e-5, 1e-6)) << i << ": " << (found[i] - wanted[i]).abs().max();
}

template <class Fused, class Unfused, class Options>
void expect_the_same_steps(const Options& first, const Options& second) {
  const Tensors ours = parameters(), theirs = parameters();
  const auto fused = made<Fused>(ours, first, second);
  const auto unfused = made<Unfused>(theirs, first, second);
  for (int step = 1; step <= 8; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    fused->step();
    unfused->step();
    expect_close(ours, theirs);
  }
}

TEST(FusedOptimizers, StepAsThoseOfTorch) {
  using namespace torch::optim;
  expect_the_same_steps<FusedSGD, SGD>(SGDOptions(0.1), SGDOptions(0.05).weight_decay(0.01));
  expect_the_same_steps<FusedSGD, SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.1), SGDOptions(0.05));
  expect_the_same_steps<FusedSGD, SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3),
                                       SGDOptions(0.05).momentum(0.5));
  expect_the_same_steps<FusedAdam, Adam>(AdamOptions(0.01), AdamOptions(0.02).weight_decay(0.1).betas({0.8, 0.9}));
  expect_the_same_steps<FusedAdam, Adam>(AdamOptions(0.01).amsgrad(true), AdamOptions(0.02).eps(1e-4));
  expect_the_same_steps<FusedAdamW, AdamW>(AdamWOptions(0.01), AdamWOptions(0.02).weight_decay(0.1).amsgrad(true));
}

// What one has saved the other goes on with, in both directions, with the number of steps.
template <class First, class Second, class Options>
void expect_to_go_on(const Options& options) {
  const Tensors ours = parameters(), theirs = parameters();
  const auto first = made<First>(ours, options, options);
  const auto undisturbed = made<First>(theirs, options, options);
  for (int step = 1; step <= 4; ++step) {
    set_gradients(ours, step);
    first->step();
  }
  std::stringstream file;
  torch::serialize::OutputArchive out;
  first->save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  const auto second = made<Second>(ours, options, options);
  for (int step = 1; step <= 2; ++step) {  // has steps of its own behind it, which do not count any more
    const Tensors kept = {ours[0].detach().clone(), ours[1].detach().clone(), ours[2].detach().clone()};
    set_gradients(ours, step);
    second->step();
    for (std::size_t i = 0; i < kept.size(); ++i) ours[i].detach().copy_(kept[i]);
  }
  second->load(in);
  for (int step = 1; step <= 8; ++step) {
    set_gradients(theirs, step);
    undisturbed->step();
    if (step <= 4) continue;
    set_gradients(ours, step);
    second->step();
  }
  expect_close(ours, theirs);
}

TEST(FusedOptimizers, GoOnWithTheStateOfThoseOfTorch) {
  using namespace torch::optim;
  const auto sgd = SGDOptions(0.1).momentum(0.9);
  expect_to_go_on<FusedSGD, SGD>(sgd);
  expect_to_go_on<SGD, FusedSGD>(sgd);
  expect_to_go_on<FusedAdam, Adam>(AdamOptions(0.01));
  expect_to_go_on<Adam, FusedAdam>(AdamOptions(0.01).amsgrad(true));
  expect_to_go_on<FusedAdamW, FusedAdamW>(AdamWOptions(0.01));
}

TEST(FusedOptimizers, CallTheClosureWithGradients) {
  at::Tensor weight = torch::ones({3}).requires_grad_();
  FusedSGD optimizer({weight}, torch::optim::SGDOptions(0.5));
  const at::Tensor loss = optimizer.step([&] {
    at::Tensor sum = weight.sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<float>(), 3);
  EXPECT_TRUE(torch::equal(weight.detach(), torch::full({3}, 0.5)));
}

// What the kernels would make wrong numbers of, or write elsewhere.
TEST(FusedOptimizers, RefuseBeforeTheyWrite) {
  const auto refused_by = [](const auto& make, at::Tensor odd, const at::Tensor& gradient) {
    at::Tensor plain = torch::ones({2}).requires_grad_();
    plain.mutable_grad() = torch::ones({2});
    odd.requires_grad_().mutable_grad() = gradient;
    const auto optimizer = make(Tensors{plain, odd});
    const std::string why = testing::usage_error([&] { optimizer->step(); });
    EXPECT_TRUE(torch::equal(plain.detach(), torch::ones({2})));
    return why;
  };
  const auto adam = [](const Tensors& of) { return std::make_unique<FusedAdam>(of, torch::optim::AdamOptions(0.1)); };
  const auto sgd = [](const Tensors& of) { return std::make_unique<FusedSGD>(of, torch::optim::SGDOptions(0.1)); };
  EXPECT_EQ(refused_by(adam, torch::ones({3, 2}), torch::ones({3, 2}).to_sparse()),
            "fused optimizer: a parameter of sizes [3, 2] has a gradient that is sparse; an optimizer of torch::optim "
            "takes it");
  EXPECT_THAT(refused_by(adam, torch::ones({4, 8}).slice(1, 0, 5), torch::ones({4, 5})),
              ::testing::HasSubstr("does not fill its memory"));
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    EXPECT_THAT(refused_by(sgd, torch::ones({256}, dtype), torch::ones({256}, dtype)),
                ::testing::HasSubstr("is of 16 bits and on the CPU"));
}

TEST(FusedOptimizers, AdamStepsNumbersOf16Bits) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    at::Tensor ours = torch::ones({257}, dtype).requires_grad_();
    FusedAdamW optimizer({ours}, torch::optim::AdamWOptions(0.25).weight_decay(0));
    ours.mutable_grad() = torch::full({257}, 0.5, dtype);
    optimizer.step();
    EXPECT_TRUE(torch::allclose(ours.detach().to(at::kFloat), torch::full({257}, 0.75), 1e-2, 1e-2)) << dtype;
  }
}

// Steps that found_inf leaves out, the very first ones among them, are as if nobody had asked for them.
template <class Optimizer, class Options>
void expect_left_out_steps_to_be_none(const Options& options) {
  const Tensors ours = parameters(), theirs = parameters();
  const auto told = made<Optimizer>(ours, options, options);
  const auto undisturbed = made<Optimizer>(theirs, options, options);
  for (int step = 1; step <= 9; ++step) {
    const bool left_out = step <= 2 || step == 5 || step == 8;
    set_gradients(ours, step);
    told->found_inf = torch::tensor(left_out ? 1.0F : 0.0F);
    told->step();
    if (left_out) continue;
    set_gradients(theirs, step);
    undisturbed->step();
  }
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], theirs[i])) << i;
}

TEST(FusedOptimizers, LeaveOutAStepByTheWordOfTheDevice) {
  using namespace torch::optim;
  expect_left_out_steps_to_be_none<FusedSGD>(SGDOptions(0.1).weight_decay(0.1));
  expect_left_out_steps_to_be_none<FusedSGD>(SGDOptions(0.1).momentum(0.9).dampening(0.5));
  expect_left_out_steps_to_be_none<FusedAdam>(AdamOptions(0.01).amsgrad(true));
  expect_left_out_steps_to_be_none<FusedAdamW>(AdamWOptions(0.01));
}

template <class Optimizer>
void step_by(Optimizer& optimizer, const at::Tensor& weight, const std::vector<float>& found_infs) {
  for (const float found_inf : found_infs) {
    weight.mutable_grad() = torch::full({3}, 0.5);
    optimizer.found_inf = torch::tensor(found_inf);
    optimizer.step();
  }
}

void load_what_is_saved(const torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  std::stringstream file;
  torch::serialize::OutputArchive out;
  from.save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  to.load(in);
}

// Of Adam the device counts the steps that it has made.
TEST(FusedOptimizers, SaveTheStepsThatWereMade) {
  const torch::optim::AdamOptions options(0.1);
  const at::Tensor weight = torch::ones({3}).requires_grad_();
  FusedAdam optimizer({weight}, options);
  step_by(optimizer, weight, {0, 1, 0});
  torch::optim::Adam plain({weight}, options);
  load_what_is_saved(optimizer, plain);
  const auto steps_of = [&](torch::optim::Optimizer& of) {
    return static_cast<torch::optim::AdamParamState&>(*of.state()[weight.unsafeGetTensorImpl()]).step();
  };
  EXPECT_EQ(steps_of(plain), 2);
  step_by(optimizer, weight, {1, 0});
  settle_steps(optimizer);
  EXPECT_EQ(steps_of(optimizer), 3);
}

// Also where as many were asked for as the loaded state has made.
TEST(FusedOptimizers, CountTheStepsOfTheStateThatIsLoaded) {
  const torch::optim::AdamOptions options(0.1);
  const at::Tensor ours = torch::ones({3}).requires_grad_(), theirs = torch::ones({3}).requires_grad_();
  FusedAdam one({ours}, options), other({theirs}, options);
  step_by(one, ours, {1, 0, 1, 1});
  step_by(other, theirs, {0, 0, 0, 0});
  load_what_is_saved(other, one);
  {
    const torch::NoGradGuard no_grad;
    ours.copy_(theirs);
  }
  step_by(one, ours, {0});
  step_by(other, theirs, {0});
  EXPECT_TRUE(torch::equal(ours, theirs));
}

}  // namespace
}  // namespace lockstep::amp
