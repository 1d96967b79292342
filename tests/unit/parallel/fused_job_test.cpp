// A job with an optimizer of ours and all options at once, on ranks that are threads: what ThreadSanitizer sees of it.

#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/state/hash.h"
#include "lockstep/state/pin.h"
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

// A rank hears of it in the third step.
support::SmallJob job_that_is_asked_for_room(const std::shared_ptr<comm::Group>& group) {
  support::SmallJob job;
  job.after_step = [group](parallel::Engine& ddp) {
    if (ddp.steps() == 2 && group->rank() == 1) {
      EXPECT_TRUE(base::ask_for_room(group->node().member.page()));
    }
  };
  return job;
}

TEST(FusedJob, MakesRoomBehindAStep) {
  support::run_ranks(support::RankKind::threads, 2, [](auto group) {
    const base::ControlPage& page = group->node().member.page();
    EXPECT_THROW(support::run_small_job(group, job_that_is_asked_for_room(group)), GroupAborted);
    EXPECT_TRUE(base::has_made_room(page));
    EXPECT_EQ(base::committed(page.regions[0])->step, 3u);
  });
}

// A save that was cut might be that of the best checkpoint, which nobody makes again.
TEST(FusedJob, MakesRoomBehindTheFirstStepInWhichNobodyHoldsItsState) {
  support::run_ranks(support::RankKind::threads, 2, [](auto group) {
    support::SmallJob job = job_that_is_asked_for_room(group);
    job.holdable = true;
    std::optional<state::Pin> save;  // rank 0's, from step 1 to step 4
    const auto ask = job.after_step;
    job.after_step = [&](parallel::Engine& ddp) {
      ask(ddp);
      if (group->rank() == 0 && ddp.steps() == 1) save.emplace(group->node().segment);
      if (group->rank() == 0 && ddp.steps() == 4) save.reset();
      group->barrier();  // before anybody looks
    };
    EXPECT_THROW(support::run_small_job(group, job), GroupAborted);
    EXPECT_EQ(base::committed(group->node().member.page().regions[0])->step, 5u);
  });
}

// Whose loop is to look, and to save.
TEST(FusedJob, ThatIsToStopDoesNotMakeRoom) {
  {
    const StopOn stop({SIGUSR1});
    std::raise(SIGUSR1);
    support::run_ranks(support::RankKind::threads, 2, [](auto group) {
      support::run_small_job(group, job_that_is_asked_for_room(group));
      const base::ControlPage& page = group->node().member.page();
      EXPECT_FALSE(base::has_made_room(page));
      EXPECT_EQ(base::committed(page.regions[0])->step, 6u);
    });
  }
  const StopOn forgets({SIGUSR1});
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
