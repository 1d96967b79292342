// A job with an optimizer of ours and all options at once, on ranks that are threads: what ThreadSanitizer sees of it.

#include <gtest/gtest.h>

#include <string>

#include "lockstep/state/hash.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

// Groups, accumulation, clipping, a plateau, the average, a scaled loss that overflows, parameters unused in some
// shards or in all: six steps have each.
TEST(FusedJob, OnThreadsHasOneStateWithAllOptions) {
  for (const Amp amp : {Amp::none, Amp::bf16})
    support::run_ranks(support::RankKind::threads, 2, [&](auto group) {
      support::SmallJob job = support::disturbed_job(amp, 6);
      job.ballast = 0;
      std::string state;
      job.after_step = [&](parallel::Engine& ddp) { state = ddp.state().hash(); };
      const std::string mine = support::run_small_job(group, job) + state;
      for (const auto& other : group->all_gather(torch::full({1}, std::int64_t(state::hash64(mine)), torch::kLong)))
        EXPECT_EQ(other.template item<std::int64_t>(), std::int64_t(state::hash64(mine)));
    });
}

// What the killed and resumed runs of it are to find: a rule of one group that comes to the weights of the other.
TEST(FusedJob, RulesOfItsGroupsDecideItsBits) {
  using optim::AdamOptions;
  const auto hash_with = [](const AdamOptions& biases) {
    support::SmallJob job = support::disturbed_job(Amp::none, 3);
    job.optimizer = support::maker({optim::ParamGroup<AdamOptions>{"*.bias", biases}, {"*"}}, AdamOptions{.lr = 0.01});
    return support::hash_of(1, job);
  };
  const std::string alike = hash_with({});
  EXPECT_NE(hash_with({.lr = 1e-3}), alike) << "the plateau makes their rates equal";
  EXPECT_NE(hash_with({.betas = optim::Betas{0.8, 0.99}}), alike);
  for (const AdamOptions& biases : {AdamOptions{}, {.lr = 1e-3}, {.betas = optim::Betas{0.8, 0.99}}})
    EXPECT_NE(support::hash_of(1, support::disturbed_job(Amp::none, 3)), hash_with(biases));
}

}  // namespace
}  // namespace lockstep
