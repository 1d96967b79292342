// Training on several nodes: the bits of one, whatever the nodes have of its ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/room.h"
#include "lockstep/comm/network/hierarchical_group.h"
#include "lockstep/comm/network/wire.h"
#include "lockstep/state/pin.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/ranks.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::disturbed_job;
using support::flip_bit;
using support::hash_of;
using support::nodes_hash;
using support::run_nodes;
using support::SharedText;
using support::SmallJob;
using ::testing::HasSubstr;

TEST(Nodes, HaveTheBitsOfOne) {
  const SmallJob job{.shards = 4, .steps = 4};
  const std::string one = hash_of(1, job);
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1, 1}, {3, 1}, {1, 2}})
    EXPECT_EQ(nodes_hash(nodes, job), one) << ::testing::PrintToString(nodes);
}

// As init({.backend = "gloo"}) makes their group; a model's waves have a tag of their own.
TEST(Nodes, HaveTheBitsOfOneThroughGloo) {
  support::RankOptions options = support::over_gloo();
  options.group = comm::hierarchical_group;
  SmallJob job{.shards = 4, .steps = 3, .optimizer = support::small_adam()};
  job.overlap_bytes = 1024;
  const std::string one = hash_of(1, job);
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2, 2}, {1, 1, 1, 1}, {3, 1}})
    EXPECT_EQ(nodes_hash(nodes, job, options), one) << ::testing::PrintToString(nodes);
  for (const bool copied : {false, true}) {
    SmallJob in_shares = job;
    in_shares.zero1 = true;
    in_shares.zero1_copy = copied;
    EXPECT_EQ(nodes_hash({3, 1}, in_shares, options), one) << "copied: " << copied;
  }
  job.shards = 9;
  EXPECT_EQ(nodes_hash({1, 1, 1}, job, options), hash_of(1, job));
}

// It sends nothing, and has no memory for what other nodes would send: behind its slots the region ends.
TEST(Nodes, OfWhichThereIsOneThatAskedForANetworkWriteNothingBehindTheirMemory) {
  run_nodes({2}, [](auto group) {
    ASSERT_NE(group->wire(), nullptr);
    torch::nn::Linear model(1024, 1024);  // twice what a region is rounded up to
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const at::Tensor before = model->weight.detach().clone();
    ddp(torch::ones({1, 1024})).sum().backward();
    optimizer.step();
    EXPECT_EQ(ddp.steps(), 1u);
    EXPECT_TRUE(torch::allclose(model->weight.detach(), before - 0.1));
  });
}

// What is said at the start is what is counted in a step, over all nodes and of the one that sends most.
TEST(Nodes, SendWhatTheySay) {
  struct Told {
    std::vector<int> nodes;
    int shards;
    std::size_t overlap_bytes = 0;
    Reduction reduction = Reduction::exact;
    Compression compression = Compression::none;
  };
  for (const auto& [nodes, shards, overlap_bytes, reduction, compression] :
       std::vector<Told>{{{2, 2}, 4},
                         {{3, 1}, 4},
                         {{1, 1, 1}, 9},
                         {{2, 2}, 4, 1024},
                         {{1, 1, 1}, 9, 1024},
                         {{3, 1}, 4, 0, Reduction::fast},
                         {{1, 1, 1}, 9, 1024, Reduction::fast},
                         {{2, 2}, 4, 0, Reduction::exact, Compression::bf16},
                         {{3, 1}, 4, 1024, Reduction::exact, Compression::fp16},
                         {{1, 1, 1}, 9, 0, Reduction::fast, Compression::fp16}}) {
    SharedText counted;
    ::testing::internal::CaptureStderr();
    SmallJob job{.shards = shards, .steps = 3, .amp = Amp::bf16};
    job.overlap_bytes = overlap_bytes;
    job.reduction = reduction;
    job.compression = compression;
    run_nodes(nodes, [&, waves = overlap_bytes > 0](auto group) {
      std::vector<std::uint64_t> sent;
      job.after_step = [&](Engine& engine) {
        sent.push_back(group->wire()->bytes_sent() + engine.debug().logging_data().waves.sent_bytes);
      };
      run_small_job(group, job);
      ASSERT_EQ(sent.size(), 4u);
      EXPECT_EQ(sent[2] - sent[1], sent[3] - sent[2]);
      const at::Tensor by_node = torch::zeros({group->topology().nodes}, torch::kLong);
      by_node[group->topology().node] = std::int64_t(sent[3] - sent[2]);
      group->all_reduce(by_node);
      if (group->rank() == 0)
        counted.set("lockstep: " + std::to_string(group->topology().nodes) + " nodes send each other " +
                    std::to_string(by_node.sum().template item<std::int64_t>()) + " bytes in each step, one of them " +
                    std::to_string(by_node.max().template item<std::int64_t>()) + (waves ? ", in " : "\n"));
    });
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(counted.get())) << ::testing::PrintToString(nodes);
    EXPECT_NE(counted.get(), "");
  }
}

TEST(Nodes, HaveTheBitsOfOneWithManyShards) {
  const SmallJob job{.shards = 9, .steps = 2, .optimizer = support::small_adam()};
  EXPECT_EQ(nodes_hash({1, 1, 1}, job), hash_of(1, job));
}

// Where the nodes' runs of shards are subtrees of one node's tree anyway, they are added in its order.
TEST(Nodes, ThatReduceFastHaveTheBitsOfOneWhereTheirRunsAreAligned) {
  const SmallJob exact{.shards = 4, .steps = 3};
  const std::string one = hash_of(1, exact);
  SmallJob fast = exact;
  fast.reduction = Reduction::fast;
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2, 2}, {1, 1}, {1, 1, 1, 1}})
    EXPECT_EQ(nodes_hash(nodes, fast), one) << ::testing::PrintToString(nodes);
}

// In float32: a few gradients of 16 bits add up in it without rounding, in whatever order.
TEST(Nodes, ThatReduceFastHaveElsewhereBitsOfTheirOwnInEveryRun) {
  const std::vector<std::pair<std::vector<int>, int>> uneven = {{{3, 1}, 4}, {{1, 1, 1}, 9}};
  for (const auto& [nodes, shards] : uneven) {
    SmallJob job{.shards = shards, .steps = 3};
    const std::string one = hash_of(1, job);
    job.reduction = Reduction::fast;
    const std::string fast = nodes_hash(nodes, job);
    EXPECT_NE(fast, one) << ::testing::PrintToString(nodes);
    EXPECT_EQ(nodes_hash(nodes, job), fast) << ::testing::PrintToString(nodes);
  }
}

// The sums of all shards, whoever adds them: as far as float32 has them.
TEST(Nodes, ThatReduceFastMakeTheStepOfOne) {
  run_nodes({2, 1}, [](auto group) {
    torch::nn::Linear model(3, 1);
    DistributedDataParallel ddp(model, group, {.shards = 3, .reduction = Reduction::fast});
    optim::SGD optimizer(ddp, {.lr = 0.5});
    const at::Tensor before = model->weight.detach().clone();
    const int shard = group->rank();
    ddp(torch::full({1, 3}, float(1 << shard))).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(model->weight.detach(), before - 0.5 * (1 + 2 + 4) / 3, 1e-5, 1e-6));
  });
}

// Groups, averages, scaled losses that overflow, clipping, unused parameters, several passes, kept bytes; gradients of
// two kinds.
TEST(Nodes, HaveTheBitsOfOneWithAllOptions) {
  for (const Amp amp : {Amp::none, Amp::bf16}) {
    const SmallJob job = disturbed_job(amp, 6);
    EXPECT_EQ(nodes_hash({2, 1}, job), hash_of(1, job)) << int(amp);
  }
}

TEST(Nodes, TakeOverAnEdit) {
  SmallJob job{.shards = 2, .steps = 3};
  job.after_step = [](Engine& engine) {
    engine.modify([&] {
      for (at::Tensor& parameter : engine.module().parameters()) parameter.mul_(0.5);
    });
  };
  EXPECT_EQ(nodes_hash({1, 1}, job), hash_of(1, job));
}

// What the agent of one of them asks for, before one of its ranks comes to the fourth step.
TEST(Nodes, MakeRoomForAnotherBehindTheSameStep) {
  run_nodes({2, 1}, [](auto group) {
    base::ControlPage& page = group->node().member.page();
    SmallJob job{.shards = 3, .steps = 6};
    job.after_step = [&](Engine& engine) {
      if (engine.steps() == 3 && group->rank() == 2) {
        EXPECT_TRUE(base::ask_for_room(page));
      }
    };
    try {
      run_small_job(group, job);
      ADD_FAILURE() << "all steps were made";
    } catch (const GroupAborted& aborted) {
      EXPECT_EQ(aborted.failure().exit_code, kExitStopped);
    }
    EXPECT_TRUE(base::has_made_room(page));
    EXPECT_EQ(base::committed(page.regions[0])->step, 4u);
  });
}

// The save is on one node, and the agent of the other has heard of the newcomer first.
TEST(Nodes, MakeRoomBehindTheFirstStepInWhichNobodyHoldsTheStateOfAny) {
  run_nodes({1, 1}, [](auto group) {
    base::ControlPage& page = group->node().member.page();
    SmallJob job{.shards = 2, .steps = 6};
    job.holdable = true;
    std::optional<state::Pin> save;  // rank 0's, from step 1 to step 4
    job.after_step = [&](Engine& engine) {
      if (group->rank() == 0 && engine.steps() == 1) save.emplace(group->node().segment);
      if (group->rank() == 0 && engine.steps() == 4) save.reset();
      if (group->rank() == 1 && engine.steps() == 2) {
        EXPECT_TRUE(base::ask_for_room(page));
      }
      group->barrier();  // before anybody looks
    };
    EXPECT_THROW(run_small_job(group, job), GroupAborted);
    EXPECT_EQ(base::committed(page.regions[0])->step, 5u);
  });
}

TEST(Nodes, OfWhichThereIsOneCommitModelsTogether) {
  run_nodes({2}, [](auto group) {
    torch::nn::Linear a(2, 2), b(2, 2);
    DistributedDataParallel one(a, group, {.name = "a"}), other(b, group, {.name = "b"});
    optim::SGD first(one, {.lr = 0.1}), second(other, {.lr = 0.1});
    commit_together(one, other);
    (one(torch::ones({1, 2})).sum() + other(torch::ones({1, 2})).sum()).backward();
    first.step();
    second.step();
    EXPECT_EQ(one.steps() + other.steps(), 2u);
  });
}

// ---- verify_replicas_every

std::string this_host() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

// What a run of the job says on this rank; all ranks have heard it then, and the group can be used.
std::string said_by_job(const std::shared_ptr<comm::Group>& group, const SmallJob& job) {
  std::string said = support::what_of([&] { run_small_job(group, job); });
  group->barrier();
  return said;
}

TEST(Nodes, WithEqualStatesArePassedByTheCheck) {
  SmallJob job = disturbed_job(Amp::bf16, 6);
  const std::string unchecked = hash_of(1, job);
  job.verify_every = 1;
  EXPECT_EQ(nodes_hash({2, 1}, job), unchecked);
  EXPECT_EQ(hash_of(2, job), unchecked) << "one node, which has nothing to compare";
}

// Behind step 3 nobody looks.
TEST(Nodes, NameTheOneThatHasOtherWeights) {
  run_nodes({2, 1}, [](auto group) {
    SmallJob job{.shards = 3, .steps = 6, .verify_every = 2};
    job.after_step = [&](Engine& engine) {
      if (group->rank() == 2 && engine.steps() == 3) flip_bit(engine, "fc2.weight");
    };
    const std::string host = this_host();
    EXPECT_EQ(said_by_job(group, job),
              "step 5: node 1 (" + host + ") has other values of parameter 'fc2.weight' after step 4 than node 0 (" +
                  host +
                  "), and of two nobody knows which is right (verify_replicas_every). Nothing was updated; "
                  "optimizer.zero_grad() drops the gradients");
  });
}

TEST(Nodes, OfThreeNameTheOneThatIsNotAsMost) {
  run_nodes({1, 1, 1}, [](auto group) {
    SmallJob job{.shards = 3, .steps = 4, .optimizer = support::small_adam(), .verify_every = 1};
    job.after_step = [&](Engine& engine) {
      if (group->rank() == 0 && engine.steps() == 2) flip_bit(engine, "fc1.bias", 1);
    };
    EXPECT_THAT(said_by_job(group, job),
                HasSubstr("step 3: node 0 (" + this_host() +
                          ") has other optimizer state of parameter 'fc1.bias' after step 2 than most nodes"));
  });
}

TEST(Nodes, ThatHaveDivergedAreMadeEqualByAnEdit) {
  run_nodes({1, 1}, [](auto group) {
    torch::nn::Linear model(2, 2);
    DistributedDataParallel ddp(model, group, {.verify_replicas_every = 1});
    optim::SGD optimizer(ddp, {.lr = 0.1});
    const auto step = [&] {
      ddp(torch::ones({2, 2})).sum().backward();
      optimizer.step();
    };
    const auto first_weight = [&] { return model->weight[0][0].template item<float>(); };
    const float begin = first_weight();
    step();
    if (group->rank() == 1) flip_bit(ddp, "weight");
    EXPECT_THAT(support::what_of(step), HasSubstr("node 1 ("));
    optimizer.zero_grad();
    ddp.modify([] {});
    step();
    EXPECT_EQ(ddp.steps(), 2u);
    EXPECT_NEAR(first_weight(), begin - 2 * 0.1f * 2, 1e-5);  // its gradient is the sum of two inputs
    const std::string mine = ddp.state().hash();
    for (const std::string& theirs : comm::all_gather_bytes(*group, mine)) EXPECT_EQ(theirs, mine);
  });
}

}  // namespace
}  // namespace lockstep::parallel
