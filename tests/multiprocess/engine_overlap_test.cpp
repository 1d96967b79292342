// Gradients that go to other nodes in several waves: the bits of one node, and what is said of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::disturbed_job;
using support::hash_of;
using support::nodes_hash;
using support::run_nodes;
using support::SmallJob;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSmallWaves = 1024;

// SmallNet has six: of the last layer, of the one in front of it, and of each parameter in front of that.
SmallJob in_waves(SmallJob job) {
  job.overlap_bytes = kSmallWaves;
  return job;
}

TEST(Overlap, HasTheBitsOfOne) {
  for (const auto& optimizer : {support::small_sgd(), support::small_adam()}) {
    const SmallJob job{.shards = 4, .steps = 4, .optimizer = optimizer};
    const std::string one = hash_of(1, job);
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {3, 1}, {1, 2}, {1, 1, 1}})
      EXPECT_EQ(nodes_hash(nodes, in_waves(job)), one) << ::testing::PrintToString(nodes);
  }
}

TEST(Overlap, HasTheBitsOfOneWithManyShards) {
  const SmallJob job{.shards = 9, .steps = 3};
  EXPECT_EQ(nodes_hash({1, 1, 1}, in_waves(job)), hash_of(1, job));
}

TEST(Overlap, HasTheBitsOfOneWithAllOptions) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const SmallJob job = disturbed_job(amp, 6);
    EXPECT_EQ(nodes_hash({2, 1}, in_waves(job)), hash_of(1, job)) << int(amp);
  }
}

TEST(Overlap, IsToldAtTheStart) {
  ::testing::internal::CaptureStderr();
  nodes_hash({1, 1}, in_waves({.shards = 2, .steps = 1}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(", in 6 waves\n"));
}

// They would wait for messages that nobody sends.
TEST(Overlap, OfOtherBytesOnARankIsRefusedOnAll) {
  run_nodes({1, 1}, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.overlap_bytes = group->rank() == 0 ? std::size_t(0) : kSmallWaves});
    EXPECT_THAT(support::what_of([&] { optim::SGD optimizer(ddp, {.lr = 0.1}); }),
                AllOf(HasSubstr("rank 1 "), HasSubstr("or overlap_bytes than rank 0")));
  });
}

}  // namespace
}  // namespace lockstep::parallel
