// What is trained in the benchmark of whole steps.

#include "benchmarks/step/workload.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include <algorithm>
#include <string>

#include "benchmarks/step/encoder.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/fuse.h"

namespace lockstep::bench {
namespace {

using ::testing::Contains;

TEST(Workloads, ThoseWithLongStepsAreMeasuredWhereTheyAreAskedFor) {
  EXPECT_THAT(usual_workload_names(), Contains("resnet18_cifar"));
  for (const Workload& workload : workloads()) {
    SCOPED_TRACE(workload.name);
    EXPECT_THAT(workload_names(), Contains(workload.name));
    EXPECT_EQ(std::ranges::count(usual_workload_names(), workload.name), workload.by_name ? 0 : 1);
    EXPECT_EQ(find_workload(workload.name).batch, workload.batch);
  }
  EXPECT_THROW(find_workload("resnet51"), UsageError);
}

TEST(Workloads, BatchesOfLargePicturesAreFewer) {
  for (const std::string& name : usual_workload_names()) EXPECT_EQ(batches_of(find_workload(name)), 64) << name;
  EXPECT_EQ(batches_of(find_workload("resnet50")), 6);
  EXPECT_EQ(batches_of(find_workload("resnet50_b32")), 4);
  EXPECT_EQ(batches_of(find_workload("encoder")), 16);
}

TEST(Encoder, FusedIsTheSameFunctionOfTheSameTensors) {
  at::manual_seed(3);
  Encoder plain(2, 5);
  at::manual_seed(3);
  Encoder fused(2, 5);
  const auto before = fused.named_parameters();
  EXPECT_EQ(nn::fuse(fused).size(), 8U);  // of each layer two of attention and two behind it
  EXPECT_TRUE(nn::fuse(fused).empty());
  const auto after = fused.named_parameters();
  EXPECT_EQ(after.keys(), plain.named_parameters().keys());
  for (const auto& item : after) EXPECT_TRUE(item.value().is_same(before[item.key()])) << item.key();

  const at::Tensor x = torch::randn({3, 4, kWidth});
  const at::Tensor ours = fused.forward(x), theirs = plain.forward(x);
  EXPECT_EQ(ours.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_TRUE(torch::allclose(ours, theirs, 1e-3, 1e-4));
  ours.square().mean().backward();
  theirs.square().mean().backward();
  for (const auto& item : plain.named_parameters())
    EXPECT_TRUE(torch::allclose(after[item.key()].grad(), item.value().grad(), 1e-2, 1e-4)) << item.key();
}

// benchmarks/peer/encoder.py draws first what is called first.
TEST(Encoder, HasTheInitialBitsOfPythons) {
  at::manual_seed(3);
  const Encoder encoder(1, 5);
  at::manual_seed(3);
  const torch::nn::Linear attention_in(kWidth, 3 * kWidth), attention_out(kWidth, kWidth), first(kWidth, 2048),
      second(2048, kWidth), last(kWidth, 5);
  const auto found = encoder.named_parameters();
  EXPECT_TRUE(torch::equal(found["layers.0.attention_in.weight"], attention_in->weight));
  EXPECT_TRUE(torch::equal(found["layers.0.attention_out.bias"], attention_out->bias));
  EXPECT_TRUE(torch::equal(found["layers.0.first.weight"], first->weight));
  EXPECT_TRUE(torch::equal(found["layers.0.second.bias"], second->bias));
  EXPECT_TRUE(torch::equal(found["last.weight"], last->weight));
}

TEST(Encoder, ALayerIsTorchsTransformerEncoderLayer) {
  at::manual_seed(5);
  Encoder encoder(1, 5);
  torch::nn::TransformerEncoderLayer layer(
      torch::nn::TransformerEncoderLayerOptions(kWidth, 8).dim_feedforward(2048).dropout(0.0));
  const at::NoGradGuard no_grad;
  const auto ours = encoder.named_parameters();
  layer->self_attn->in_proj_weight.copy_(ours["layers.0.attention_in.weight"]);
  layer->self_attn->in_proj_bias.copy_(ours["layers.0.attention_in.bias"]);
  layer->self_attn->out_proj->weight.copy_(ours["layers.0.attention_out.weight"]);
  layer->self_attn->out_proj->bias.copy_(ours["layers.0.attention_out.bias"]);
  layer->linear1->weight.copy_(ours["layers.0.first.weight"]);
  layer->linear1->bias.copy_(ours["layers.0.first.bias"]);
  layer->linear2->weight.copy_(ours["layers.0.second.weight"]);
  layer->linear2->bias.copy_(ours["layers.0.second.bias"]);
  const at::Tensor x = torch::randn({3, 4, kWidth});
  const at::Tensor mean = layer->forward(x.transpose(0, 1)).mean(0);  // tokens come before samples
  const at::Tensor theirs = at::linear(mean, ours["last.weight"], ours["last.bias"]);
  EXPECT_TRUE(torch::allclose(encoder.forward(x), theirs, 1e-4, 1e-5));
}

// What is added to all values of a token is lost in its own normalisation: the others see it.
TEST(Encoder, TokensOfASampleSeeEachOther) {
  at::manual_seed(4);
  Encoder encoder(1, 5);
  const at::Tensor x = torch::randn({2, 4, kWidth});
  const at::Tensor other = x.clone();
  other[0][3].add_(1);
  const at::Tensor difference = (encoder.forward(x) - encoder.forward(other)).abs().amax(1);
  EXPECT_GT(difference[0].item<float>(), 1e-4F);
  EXPECT_LT(difference[1].item<float>(), 1e-5F);
}

}  // namespace
}  // namespace lockstep::bench
