// Trying sizes of buckets.

#include "lockstep/parallel/bucket_trials.h"

#include <gmock/gmock.h>

#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = 1 << 20;

TEST(BucketTrials, SizesMakeOtherBuckets) {
  EXPECT_THAT(trial_sizes({100, 200}), ElementsAre(1));
  EXPECT_THAT(trial_sizes({2 * kMiB, 2 * kMiB}), ElementsAre(1, 5));
  EXPECT_THAT(trial_sizes({30 * kMiB, 30 * kMiB, kMiB, kMiB}), ElementsAre(1, 5, 100)) << "25 cuts as 5 does";
  EXPECT_THAT(trial_sizes({}), ElementsAre(1));
}

TEST(BucketTrials, EachRoundHasEachSizeAndBeginsWithAnother) {
  std::vector<std::size_t> order;
  for (std::uint64_t pass = 0; const auto size = trial_of(pass, 3); ++pass) order.push_back(*size);
  ASSERT_EQ(order.size(), 3 * kTrialRounds);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 9), (std::vector<std::size_t>{0, 1, 2, 1, 2, 0, 2, 0, 1}));
  EXPECT_EQ(trial_of(std::uint64_t(1) << 40, 3), std::nullopt);
}

TEST(BucketTrials, TheFirstRoundAndSingleSlowPassesDoNotCount) {
  const auto medians = trial_medians({{0.1, 3, 3, 9, 3, 3}, {50, 2, 2, 2, 40, 2}});
  EXPECT_THAT(medians, ElementsAre(3, 2));
  EXPECT_EQ(fastest(medians), 1u);
  EXPECT_EQ(fastest({2, 2}), 0u);
}

// Two matrices of a MiB and a half: a bucket each, or one of both.
torch::nn::Sequential wide_layers() {
  torch::nn::Sequential net(torch::nn::Linear(640, 640), torch::nn::Tanh(), torch::nn::Linear(640, 640));
  at::Generator generator = at::detail::createCPUGenerator(5);
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters())
    parameter.copy_(at::randn(parameter.sizes(), generator).mul_(0.01));
  return net;
}

std::vector<std::vector<at::Tensor>> gradients_of_passes(const Groups& group, bool autotune, LoggingData* told) {
  torch::nn::Sequential net = wide_layers();
  DistributedDataParallel ddp(net, group, {.buckets = {.autotune = autotune}});
  std::vector<std::vector<at::Tensor>> seen;
  for (std::uint64_t pass = 0; pass < 2 * kTrialRounds + 2; ++pass) {
    EXPECT_TRUE(pass >= 2 * kTrialRounds || ddp.debug().logging_data().tried.empty());
    net->zero_grad();
    const at::Tensor data =
        at::randn({2, 640}, at::detail::createCPUGenerator(100 * pass + std::uint64_t(group->rank())));
    ddp(data).square().mean().backward();
    seen.emplace_back();
    for (const at::Tensor& parameter : net->parameters()) seen.back().push_back(parameter.grad().clone());
  }
  *told = ddp.debug().logging_data();
  return seen;
}

TEST(BucketAutotune, ChoosesOneSizeForAllRanksAndChangesNoBit) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    LoggingData plain, tuned;
    const auto expected = gradients_of_passes(group, false, &plain);
    if (group->rank() == 0) testing::internal::CaptureStderr();
    const auto found = gradients_of_passes(group, true, &tuned);
    group->barrier();
    if (group->rank() == 0) {
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_THAT(said, HasSubstr("MiB from now on; backward took"));
      EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    }
    for (std::size_t pass = 0; pass < expected.size(); ++pass)
      for (std::size_t i = 0; i < expected[pass].size(); ++i)
        EXPECT_TRUE(at::equal(found[pass][i], expected[pass][i])) << pass << " " << i;
    EXPECT_TRUE(plain.tried.empty());
    ASSERT_EQ(tuned.tried.size(), 2u);
    const bool small = tuned.tried[0].seconds <= tuned.tried[1].seconds;
    EXPECT_EQ(tuned.buckets.size(), small ? 2u : 1u);
    const auto seconds = group->all_gather(at::tensor({tuned.tried[0].seconds, tuned.tried[1].seconds}, at::kDouble));
    EXPECT_TRUE(at::equal(seconds[0], seconds[1]));
  });
}

TEST(BucketAutotune, FollowsRanksWithoutInputs) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net = wide_layers();
    DistributedDataParallel ddp(net, group, {.buckets = {.autotune = true}});
    ddp.join([&] {
      for (int pass = 0; pass < (group->rank() == 0 ? 3 : 20); ++pass) ddp(at::ones({2, 640})).mean().backward();
    });
    EXPECT_EQ(ddp.debug().logging_data().tried.size(), 2u);
  });
}

TEST(BucketAutotune, IsRefusedWhereBucketsMustStayWhatTheyAre) {
  const Groups group = std::make_shared<comm::SingleGroup>();
  const auto refused = [&](const DataParallelOptions& options) {
    return error_of([&] { DistributedDataParallel ddp(two_layers(), group, options); });
  };
  EXPECT_THAT(refused({.gradient_as_bucket_view = true, .buckets = {.autotune = true}}),
              HasSubstr("buckets.autotune with gradient_as_bucket_view"));
  EXPECT_THAT(refused({.buckets = {.bucket_cap_mb = 5, .autotune = true}}),
              HasSubstr("buckets.autotune beside a size of buckets"));
  DistributedDataParallel ddp(two_layers(), group, {.buckets = {.autotune = true}});
  EXPECT_THAT(error_of([&] { ddp.register_comm_hook(group, allreduce_hook); }),
              HasSubstr("a communication hook with buckets.autotune"));
}

}  // namespace
}  // namespace lockstep::parallel
