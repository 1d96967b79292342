// Bytes of others that are a part of the state (state().keep): committed with the step, found again on every rank after
// a restart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <optional>
#include <span>

#include "lockstep/base/generation.h"
#include "lockstep/comm/shm/shm_group.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::small_batch;
using support::SmallNet;
using support::what_of;
using testing::HasSubstr;

struct Progress {
  double best = 0;
  std::int64_t position = 0;
};

std::span<std::byte> memory_of(Progress& progress) { return std::as_writable_bytes(std::span(&progress, 1)); }

void one_step(DistributedDataParallel<SmallNet>& ddp, optim::Optimizer& optimizer) {
  for (auto& shard : ddp.shards(small_batch(ddp.next_step(), ddp.local_shards())))
    torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
  optimizer.step();
}

TEST(KeptProgress, GoesOnOnEveryRankAfterAKill) {
  for (const bool decided : {false, true}) {  // something after the last step
    base::Segment segment = base::Segment::create(2);
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           SmallNet model;
           DistributedDataParallel ddp(model, group, {.shards = 3});
           Progress progress;
           ddp.state().keep("progress", memory_of(progress));
           optim::SGD optimizer(ddp, {.lr = 0.1});
           for (std::int64_t step = 1; step <= 3; ++step) {
             progress.position = group->rank() == 0 ? 10 * step : -1;  // rank 0's counts
             one_step(ddp, optimizer);
           }
           progress.best = group->rank() == 0 ? 0.75 : -1;
           if (decided) ddp.state().recommit();
           progress = {2, 2};  // of a step that nobody makes
           raise(SIGKILL);
           return 1;
         })) {
      const std::optional<int> status = support::wait_for(pid);
      EXPECT_TRUE(status && WIFSIGNALED(*status));
    }
    segment = base::next_generation(std::move(segment), 3);
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           SmallNet model;
           DistributedDataParallel ddp(model, group, {.shards = 3});
           Progress progress{5, 5};
           ddp.state().keep("progress", memory_of(progress));
           optim::SGD optimizer(ddp, {.lr = 0.1});
           const bool right = ddp.steps() == 3 && progress.position == 30 && progress.best == (decided ? 0.75 : 0.0);
           one_step(ddp, optimizer);
           return right && ddp.steps() == 4 ? 0 : 3;
         }))
      EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0)) << decided;
  }
}

TEST(KeptProgress, OfADecisionAfterAStepIsCommittedForThatStep) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    SmallNet model;
    DistributedDataParallel ddp(model, group);
    Progress progress{.best = double(group->rank())};
    ddp.state().keep("progress", progress);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    EXPECT_EQ(progress.best, 0) << "rank 0's";
    one_step(ddp, optimizer);
    const std::string weights = ddp.weights_hash();
    const std::string of_step = ddp.state().hash();
    progress.best = 3;
    EXPECT_EQ(ddp.state().hash(), of_step) << "nobody has committed it";
    ddp.state().recommit();
    const std::string decided = ddp.state().hash();
    EXPECT_NE(decided, of_step);
    EXPECT_EQ(ddp.weights_hash(), weights);
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_EQ(ddp.last_record().step, 1u);
    ddp.state().recommit();
    EXPECT_EQ(ddp.state().hash(), decided) << "the same bytes";
    ddp.modify([&] { progress.best = 4; });
    EXPECT_NE(ddp.state().hash(), decided);
    EXPECT_EQ(progress.best, group->rank() == 0 ? 4 : 3);
    one_step(ddp, optimizer);
    EXPECT_EQ(ddp.steps(), 2u);
    group->barrier();
  });
}

TEST(KeptProgress, OfAnotherSizeOnOneRankIsRefusedOnAll) {
  run_ranks(RankKind::processes, 3, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group);
    std::vector<std::byte> memory(group->rank() == 2 ? 9 : 8);
    ddp.state().keep("position", memory);
    EXPECT_THAT(what_of([&] { optim::SGD optimizer(ddp); }), HasSubstr("rank 2 trains other parameters"));
  });
}

TEST(KeptProgress, IsAskedForByWhoTakesTheStateOver) {
  base::Segment segment = base::Segment::create(1);
  const auto join = [&] { return std::make_shared<comm::ShmGroup>(base::Segment::open(segment.path(), 1), 0); };
  {
    SmallNet model;
    DistributedDataParallel ddp(model, join());
    Progress progress;
    ddp.state().keep("progress", memory_of(progress));
    optim::SGD optimizer(ddp);
  }
  segment = base::next_generation(std::move(segment), 1);
  SmallNet model;
  DistributedDataParallel ddp(model, join());
  EXPECT_THROW(optim::SGD optimizer(ddp), Error);
}

}  // namespace
}  // namespace lockstep::parallel
