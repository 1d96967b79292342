// SyncBatchNorm on a GPU, which its ranks share, and DataParallel, whose replicas do. Each rank is a process of its
// own, for CUDA that was used before a fork is of no use behind it.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lockstep/device/choice.h"
#include "tests/support/device/norm_cases.h"
#include "tests/support/device/replica_cases.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"

namespace lockstep {
namespace {

using support::RankKind;

class LayersOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    support::SharedText why;
    support::run_ranks(RankKind::processes, 1, [&](const auto&) { why.set(device::why_none(device::find_cuda())); });
    if (!why.get().empty()) GTEST_SKIP() << why.get();
  }
};

TEST_F(LayersOnAGpu, SyncBatchNormIsBatchNormOnTheBatchesOfAllRanks) {
  support::run_ranks(RankKind::processes, 2, [](const auto& group) {
    const at::Device gpu = device::choose("cuda:0", 0);
    support::expect_norm_of_the_whole_batch(group, gpu);
    support::expect_norm_of_few_values(group, gpu);
  });
}

TEST_F(LayersOnAGpu, ReplicasOfOneProcessTrainAsOnTheCpu) {
  support::run_ranks(RankKind::processes, 1, [](const auto&) {
    const at::Device gpu = device::choose("cuda:0", 0);
    const std::vector<at::Tensor> wanted = support::CutNet({at::kCPU, at::kCPU, at::kCPU}).train(3);
    const std::vector<at::Tensor> found = support::CutNet({gpu, gpu, gpu}).train(3);
    support::expect_close(found, wanted);
    const std::vector<at::Tensor> again = support::CutNet({gpu, gpu, gpu}).train(3);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], again[i])) << i;
  });
}

TEST_F(LayersOnAGpu, ReplicasOnTwoOfThemTrainAsOnTheCpu) {
  support::SharedText why;
  support::run_ranks(RankKind::processes, 1, [&](const auto&) {
    if (const int gpus = device::find_cuda().devices; gpus < 2) return why.set(std::to_string(gpus) + " GPUs");
    const at::Device first = device::choose("cuda:0", 0), second = device::choose("cuda:1", 0);
    const std::vector<at::Tensor> wanted = support::CutNet({at::kCPU, at::kCPU}).train(3);
    support::expect_close(support::CutNet({first, second}).train(3), wanted);
  });
  if (!why.get().empty()) GTEST_SKIP() << "needs two: " << why.get();
}

}  // namespace
}  // namespace lockstep
