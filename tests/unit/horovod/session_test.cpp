#include "lockstep/horovod/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/single/single_group.h"
#include "lockstep/horovod/functions.h"
#include "lockstep/horovod/operations.h"
#include "lockstep/horovod/optimizer.h"
#include "tests/support/usage_error.h"

namespace lockstep::horovod {
namespace {

using ::testing::HasSubstr;
using testing::usage_error;

// A job of one rank for each case.
class Alone : public ::testing::Test {
 protected:
  Alone() { init({.group = std::make_shared<comm::SingleGroup>(), .idle_cores_hint = false}); }
  ~Alone() override { shutdown(); }
};

TEST(Session, WithoutInitIsAnError) {
  EXPECT_FALSE(is_initialized());
  EXPECT_THAT(usage_error([] { (void)rank(); }), HasSubstr("init() has not been called"));
  EXPECT_THAT(usage_error([] { (void)allreduce(torch::ones({1})); }), HasSubstr("init() has not been called"));
  shutdown();  // nothing to do
}

TEST(Session, EndsWithTheProgram) {
  const auto program = [] {
    init({.group = std::make_shared<comm::SingleGroup>(), .idle_cores_hint = false});
    (void)allreduce(torch::ones({1}));
    std::exit(3);
  };
  EXPECT_EXIT(program(), ::testing::ExitedWithCode(3), "^$");
}

TEST_F(Alone, KnowsItsPlaceAndMayComeAgain) {
  EXPECT_TRUE(is_initialized());
  init();  // is in the job already, and reads no environment
  EXPECT_EQ(rank() + local_rank() + cross_rank(), 0);
  EXPECT_EQ(size() * local_size() * cross_size(), 1);
  EXPECT_TRUE(is_homogeneous());
  shutdown();
  EXPECT_FALSE(is_initialized());
  init({.group = std::make_shared<comm::SingleGroup>(), .idle_cores_hint = false});
  EXPECT_EQ(join(), 0);
}

TEST_F(Alone, OperationsRefuseInTheCallersThread) {
  EXPECT_THAT(usage_error([] { (void)allreduce(torch::ones({1}, torch::kLong)); }), HasSubstr("Long has no mean"));
  EXPECT_THAT(usage_error([] { (void)allreduce(at::Tensor()); }), HasSubstr("undefined"));
  EXPECT_THAT(usage_error([] { (void)allreduce(torch::ones({1}, torch::kLong), {.op = Adasum}); }),
              HasSubstr("takes no Adasum"));
  EXPECT_THAT(usage_error([] { (void)allreduce(torch::ones({1}, torch::kLong), {.op = Sum, .prescale_factor = 2}); }),
              HasSubstr("takes no scale factor"));
  EXPECT_THAT(usage_error([] { (void)reducescatter(torch::ones({1}), {.op = Max}); }), HasSubstr("Average or Sum"));
  EXPECT_THAT(usage_error([] { (void)allgather(torch::ones({})); }), HasSubstr("scalar"));
  EXPECT_THAT(usage_error([] { (void)broadcast(torch::ones({1}), 1); }), HasSubstr("root_rank 1"));
  EXPECT_THAT(usage_error([] { remove_process_set({}); }), HasSubstr("cannot be removed"));
  EXPECT_THAT(usage_error([] { (void)add_process_set({1}); }), HasSubstr("rank 1 is out of place"));
}

TEST_F(Alone, OptionsThatContradictTheOptimizerAreRefused) {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  const auto refusal = [&](DistributedOptimizerOptions options) {
    return usage_error([&] { const DistributedOptimizer optimizer(sgd, std::move(options)); });
  };
  EXPECT_THAT(refusal({.backward_passes_per_step = 0}), HasSubstr("backward_passes_per_step is 0"));
  EXPECT_THAT(refusal({.op = Max}), HasSubstr("Average, Sum or Adasum"));
  EXPECT_THAT(refusal({.op = Sum, .gradient_predivide_factor = 2}), HasSubstr("needs op Average"));
  EXPECT_THAT(refusal({.gradient_predivide_factor = 0}), HasSubstr("needs more than 0"));
  EXPECT_THAT(refusal({.num_groups = -1}), HasSubstr("num_groups is -1; needs 0"));
  EXPECT_THAT(refusal({.num_groups = 1, .groups = {{model->bias}}}), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({.groups = {{model->bias}, {model->bias}}}),
              HasSubstr("group 1 of groups has a tensor that is in"));
  EXPECT_THAT(refusal({.groups = {{torch::ones({1})}}}), HasSubstr("that is no trained parameter"));
  torch::OrderedDict<std::string, at::Tensor> one;
  one.insert("weight", model->weight);
  EXPECT_THAT(refusal({.named_parameters = one}), HasSubstr("lacks parameter 1"));
}

TEST_F(Alone, EachMisuseOfTheOptimizerIsNamed) {
  torch::nn::Linear model(2, 1);
  torch::optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, {.named_parameters = model->named_parameters()});
  const auto backward = [&] { model(torch::ones({1, 2})).sum().backward(); };
  backward();
  EXPECT_THAT(usage_error(backward), HasSubstr("more than backward_passes_per_step (1) times"));
  EXPECT_THAT(usage_error([&] { optimizer.zero_grad(); }), HasSubstr("would lose gradients"));
  EXPECT_THAT(usage_error([&] { optimizer.set_backward_passes_per_step(2); }), HasSubstr("on their way"));
  optimizer.synchronize();
  EXPECT_THAT(usage_error([&] { optimizer.step(); }), HasSubstr("reduce gradients twice"));
  {
    const auto skip = optimizer.skip_synchronize();
    optimizer.step();
    EXPECT_THAT(usage_error([&] { optimizer.step(); }), HasSubstr("needs synchronize() before it"));
  }
  optimizer.zero_grad();
  EXPECT_THAT(usage_error([&] { optimizer.set_backward_passes_per_step(-1); }), HasSubstr("-1"));
  optimizer.set_backward_passes_per_step(2);
  backward();
  backward();
  optimizer.step();
}

TEST_F(Alone, ObjectsComeBack) {
  EXPECT_EQ(broadcast_object(at::IValue("text")).toStringRef(), "text");
  EXPECT_EQ(allgather_object(at::IValue(std::int64_t(7))).at(0).toInt(), 7);
}

}  // namespace
}  // namespace lockstep::horovod
