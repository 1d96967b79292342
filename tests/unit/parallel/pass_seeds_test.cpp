#include "lockstep/parallel/pass_seeds.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "lockstep/parallel/shards.h"

namespace lockstep::parallel {
namespace {

// What torch has at hand behind it: seed, words, normal numbers left over.
at::Tensor state_now() { return at::detail::getDefaultCPUGenerator().get_state(); }

void expect_seeded(PassSeeds& seeds, std::uint64_t step, int shard, std::uint64_t pass) {
  at::randn({3});  // leaves a second normal number behind
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(shard_seed(7, step, shard, pass));
  const at::Tensor wanted = state_now();
  const std::uint64_t wanted_seed = generator.current_seed();
  at::randn({3});
  ASSERT_FALSE(at::equal(state_now(), wanted));
  seeds.begin(step, pass);
  EXPECT_TRUE(at::equal(state_now(), wanted)) << "step " << step << ", pass " << pass;
  EXPECT_EQ(generator.current_seed(), wanted_seed);
}

TEST(PassSeeds, LeaveTheGeneratorAsTorchSeedsIt) {
  PassSeeds seeds(7, 3);
  for (std::uint64_t step = 1; step <= 13; ++step)
    for (std::uint64_t pass = 0; pass < 3; ++pass) expect_seeded(seeds, step, 3, pass);
}

TEST(PassSeeds, MayBeginAnywhereAndGoBack) {
  PassSeeds seeds(7, 0);
  for (const std::uint64_t step : {1000, 1003, 1004, 1002, 999, 1, 2, 1, 50}) expect_seeded(seeds, step, 0, 0);
}

TEST(PassSeeds, AreEachShardsOwn) {
  PassSeeds first(7, 0), second(7, 1);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    expect_seeded(first, step, 0, 0);
    expect_seeded(second, step, 1, 0);
  }
}

}  // namespace
}  // namespace lockstep::parallel
