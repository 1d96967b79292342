// The engine with a model on a device. That is a stand-in whose operators are the CPU's, so the states are, too.

#include <gtest/gtest.h>

#include <string>

#include "tests/support/device/sim_device.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

namespace sim = testing::sim;

// Each rank on a device of its own. Processes also where there is one rank: autograd's threads outlive no fork.
std::string state_of(support::SmallJob job, int ranks, bool on_device) {
  support::SharedText state;
  support::run_ranks(support::RankKind::processes, ranks, [&](auto group) {
    if (on_device) {
      sim::install(2);
      job.device = sim::device(group->rank() % 2);
    }
    job.after_step = [&](parallel::Engine& ddp) {
      if (group->rank() == 0) state.set(ddp.state().hash());
    };
    const std::string weights = support::run_small_job(group, job);
    if (group->rank() == 0) state.set(state.get() + " " + weights);
  });
  return state.get();
}

// Groups, accumulation, clipping, a plateau, the average, a scaled loss that overflows, dropout, BatchNorm, parameters
// unused in some shards or in all: six steps have each.
TEST(EngineOnADevice, HasTheStateOfTheCpu) {
  for (const bool all_options : {false, true}) {
    support::SmallJob job = all_options ? support::disturbed_job(Amp::none, 6) : support::SmallJob{};
    job.ballast = 0;
    const std::string expected = state_of(job, 1, false);
    EXPECT_NE(expected, "");
    for (const int ranks : {1, 2}) EXPECT_EQ(state_of(job, ranks, true), expected) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace lockstep
