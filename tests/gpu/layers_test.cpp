// SyncBatchNorm on a GPU, which its ranks share. Each is a process of its own, for CUDA that was used before a fork is
// of no use behind it.

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>

#include "lockstep/device/choice.h"
#include "tests/support/device/norm_cases.h"
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

}  // namespace
}  // namespace lockstep
