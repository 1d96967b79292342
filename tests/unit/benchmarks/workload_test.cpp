// What is trained in the benchmark of whole steps.

#include "benchmarks/step/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
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
