// A loop over a DataLoader whose place is kept with the state: wherever it is killed it goes on with the bits of an
// undisturbed one. The step's number alone could not tell where: a step takes several batches, and some are left out.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <limits>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/generation.h"
#include "lockstep/comm/shm/shm_group.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/tensor_batches.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/small_job.h"

namespace lockstep::parallel {
namespace {

// 30 points, one of which is infinite and spoils the step that it comes in.
std::shared_ptr<const data::Batches> spoilt_set() {
  torch::manual_seed(3);
  const at::Tensor points = torch::randn({30, 2});
  const at::Tensor target = points.sum(1).gt(0).to(torch::kLong);
  points[17][0] = std::numeric_limits<float>::infinity();
  return data::tensors(points, target);
}

// An epoch has 5 batches: steps of 2, 2 and 1, of which one is left out. Returns the hash of the last state.
std::string train_four_epochs(const std::shared_ptr<comm::Group>& group, std::uint64_t die_behind = 0) {
  const auto set = spoilt_set();
  torch::nn::Linear model(2, 2);
  DistributedDataParallel ddp(model, group, {.shards = 3});
  data::DataLoader loader(set, ddp.part(), {.global_batch_size = 6, .shuffle = true, .seed = 1, .num_workers = 2});
  ddp.state().keep("loader", loader.kept());
  optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
  for (auto epoch = loader.epoch(); epoch < 4; ++epoch) {
    loader.set_epoch(epoch);
    for (auto& batch : loader) {
      for (auto& shard : ddp.shards(batch))
        torch::nn::functional::cross_entropy(ddp(shard.data), shard.target).backward();
      if (loader.state().batch % 2 != 0 && loader.state().batch != loader.size()) continue;
      try {
        optimizer.step({.error_if_nonfinite = true});
      } catch (const GroupAborted&) {
        throw;
      } catch (const Error&) {
        optimizer.zero_grad();
        continue;
      }
      if (ddp.steps() == die_behind) raise(SIGKILL);
    }
  }
  return ddp.state().hash() + " after " + std::to_string(ddp.steps());
}

TEST(LoaderPlace, IsFoundAgainBehindEveryStep) {
  support::SharedText told;
  const base::Segment alone = base::Segment::create(1);
  for (const pid_t pid : support::start_ranks(alone, [&](auto group) {
         told.set(train_four_epochs(group));
         return 0;
       }))
    EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0));
  const std::string calm = told.get();
  EXPECT_NE(calm.find(" after 8"), std::string::npos) << calm << ": 3 steps an epoch, one of them left out";
  for (std::uint64_t step = 1; step <= 8; ++step) {
    base::Segment segment = base::Segment::create(2);
    for (const pid_t pid : support::start_ranks(segment, [&](auto group) {
           train_four_epochs(group, step);
           return 1;
         })) {
      const std::optional<int> status = support::wait_for(pid);
      EXPECT_TRUE(status && WIFSIGNALED(*status)) << step;
    }
    segment = base::next_generation(std::move(segment), 3);
    for (const pid_t pid :
         support::start_ranks(segment, [&](auto group) { return train_four_epochs(group) == calm ? 0 : 3; }))
      EXPECT_TRUE(support::exited_with(support::wait_for(pid), 0)) << "killed behind step " << step;
  }
}

}  // namespace
}  // namespace lockstep::parallel
