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

}  // namespace
}  // namespace lockstep
