// Where the benchmark of whole steps says that a step's time goes.

#include "benchmarks/step/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/single/single_group.h"

namespace lockstep::bench {
namespace {

using ::testing::Contains;
using ::testing::Ge;
using ::testing::Key;
using ::testing::Pair;

TEST(Profile, OperatorsHaveAKindAndAutogradsFramesAreTheFrameworks) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"aten::convolution_backward", "convolution"},
      {"aten::max_pool2d_with_indices", "pooling"},
      {"lockstep::batch_norm_relu_backward", "batch norm"},
      {"aten::native_layer_norm_backward", "layer norm"},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", "attention"},
      {"aten::gelu", "activations"},
      {"aten::mm", "matrix products"},
      {"aten::clone", "copies and new memory"},
      {"aten::mul", "other operators"},
      {"LockstepLinearBackward", "framework"},
      {"autograd::engine::evaluate_function: LockstepLinearBackward", "framework"},
      {"ScaledDotProductFlashAttentionForCpuBackward0", "framework"}};
  for (const auto& [name, kind] : kinds) EXPECT_EQ(kind_of_operator(name), kind) << name;
}

TEST(Profile, OfAFusedNetCountsItsLayers) {
  const std::shared_ptr<comm::Group> group = std::make_shared<comm::SingleGroup>();
  StepTrainer trainer(find_workload("convnet"), group, {.channels_last = true, .fuse = true});
  trainer.turn(1);
  const StepProfile found = profile_steps(trainer, *group, 1);
  for (const char* kind : {"batch norm", "convolution", "framework", "update"})
    EXPECT_THAT(found.parts, Contains(Key(kind)));
  for (const auto& [name, seconds] : found.parts) EXPECT_GE(seconds, 0.0) << name;
  EXPECT_THAT(found.operators, Contains(Pair("lockstep::batch_norm_relu_backward", Ge(0.0))));
}

// Products into the slots of gradients are those that autograd makes in memory of its own.
TEST(Profile, TheLimitOfAFusedNetIsThatOfTheSameNet) {
  constexpr double kFirst = 2.0 * 32 * 64 * 64, kSecond = 2.0 * 32 * 64 * 10;  // of a product of each layer
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(fused);
      const std::shared_ptr<comm::Group> group = std::make_shared<comm::SingleGroup>();
      StepTrainer trainer(find_workload("mlp"), group, {.amp = amp, .fuse = fused});
      trainer.turn(1);
      const BareOperators bare = time_bare_operators(trainer, *group, amp == Amp::bf16, 1);
      EXPECT_NEAR(1e9 * bare.gflop, 2 * kFirst + 3 * kSecond, 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::bench
