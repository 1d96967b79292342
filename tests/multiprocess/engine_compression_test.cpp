// Gradients that travel between nodes in 16 bits: the same weights on all nodes, with the same bits whatever the nodes
// have of the shards, and after restarts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/network/wire.h"
#include "tests/support/ambush.h"
#include "tests/support/disturbed_job.h"
#include "tests/support/machines.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using base::Phase;
using support::disturbed_job;
using support::hash_of;
using support::Machines;
using support::nodes_hash;
using support::run_nodes;
using support::SharedText;
using support::SmallJob;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr Compression kBoth[] = {Compression::fp16, Compression::bf16};

SmallJob compressed(SmallJob job, Compression compression = Compression::bf16) {
  job.compression = compression;
  return job;
}

TEST(Compressed, HasTheSameBitsOnAnyNodes) {
  const SmallJob job{.shards = 4, .steps = 3};
  const std::string exact = hash_of(1, job);
  for (const Compression compression : kBoth) {
    const std::string two = nodes_hash({1, 1}, compressed(job, compression));
    EXPECT_NE(two, exact);
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2, 2}, {3, 1}, {1, 1, 1, 1}})
      EXPECT_EQ(nodes_hash(nodes, compressed(job, compression)), two) << ::testing::PrintToString(nodes);
    EXPECT_EQ(hash_of(2, compressed(job, compression)), exact) << "one node, which sends nothing";
  }
}

TEST(Compressed, HasTheSameBitsHoweverItIsSent) {
  const SmallJob job = compressed({.shards = 3, .steps = 3, .optimizer = support::small_adam()});
  const std::string plain = nodes_hash({2, 1}, job);
  SmallJob waves = job;
  waves.overlap_bytes = 1024;
  EXPECT_EQ(nodes_hash({1, 1, 1}, waves), plain);
  SmallJob shares = waves;
  shares.zero1 = true;
  EXPECT_EQ(nodes_hash({2, 1}, shares), plain);
  shares.zero1_copy = true;
  EXPECT_EQ(nodes_hash({1, 1, 1}, shares), plain);
}

TEST(Compressed, IsAddedUpFastToo) {
  SmallJob aligned = compressed({.shards = 4, .steps = 3});
  const std::string exact = nodes_hash({2, 2}, aligned);
  aligned.reduction = Reduction::fast;
  EXPECT_EQ(nodes_hash({2, 2}, aligned), exact);
  EXPECT_EQ(nodes_hash({1, 1, 1, 1}, aligned), exact) << "of one shard each";
  SmallJob uneven = aligned;
  uneven.shards = 9;
  const std::string fast = nodes_hash({1, 1, 1}, uneven);
  SmallJob shares = uneven;
  shares.overlap_bytes = 1024;
  shares.zero1 = shares.zero1_copy = true;
  EXPECT_EQ(nodes_hash({1, 1, 1}, shares), fast) << "of sums that go to two nodes, one of which may have added them up";
  uneven.reduction = Reduction::exact;
  EXPECT_NE(nodes_hash({1, 1, 1}, uneven), fast) << "of the tree over nine shards";
}

// Groups, averages, scaled losses that overflow, clipping, unused parameters, several passes, kept bytes; gradients of
// two kinds. The nodes compare what they have behind each step.
TEST(Compressed, HasTheSameBitsWithAllOptions) {
  for (const Compression compression : kBoth) {
    SmallJob job = compressed(disturbed_job(Amp::bf16, 6), compression);
    job.verify_every = 1;
    EXPECT_EQ(nodes_hash({2, 1}, job), nodes_hash({1, 1, 1}, job)) << int(compression);
  }
}

// Gradients of 1.1, 2.2 and 4.4, which bfloat16 has as 1.1015625, 2.203125 and 4.40625. The sum of the first two lies
// between 3.296875 and 3.3125, as far from both; that of all is 7.71875.
TEST(Compressed, MakesTheStepOfRoundedSums) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{2, 1}, {1, 1, 1}})
    run_nodes(nodes, [](auto group) {
      torch::nn::Linear model(3, 1);
      DistributedDataParallel ddp(model, group, {.shards = 3, .compression = Compression::bf16});
      optim::SGD optimizer(ddp, {.lr = 0.5});
      const at::Tensor before = model->weight.detach().clone();
      ddp(torch::full({1, 3}, 1.1F * float(1 << group->rank()))).sum().backward();
      optimizer.step();
      const at::Tensor after = model->weight.detach();
      EXPECT_TRUE(torch::allclose(after, before - 0.5 * 7.71875 / 3, 0, 1e-5)) << after - before;
      EXPECT_FALSE(torch::allclose(after, before - 0.5 * 7.7 / 3, 0, 1e-3));
      EXPECT_TRUE(torch::allclose(after, before - 0.5 * 7.7 / 3, 0, 1e-2));
    });
}

// A mean of 40000 is a number of float16; the sum of two, or three, is none.
TEST(Compressed, Float16HasAMeanWhoseSumItHasNot) {
  run_nodes({2, 1}, [](auto group) {
    torch::nn::Linear model(3, 1);
    DistributedDataParallel ddp(model, group, {.shards = 3, .compression = Compression::fp16});
    optim::SGD optimizer(ddp, {.lr = 1e-4});
    const at::Tensor before = model->weight.detach().clone();
    ddp(torch::full({1, 3}, 40000.0F)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(model->weight.detach(), before - 4.0, 0, 1e-3));
  });
}

// Gradients that are finite, with a sum that float16 has not: told, and with a scaled loss skipped by all ranks until
// the scale fits. Of 2^17 those of the two first shards add up to 2^18, which is 2^16 by four.
TEST(Compressed, Float16EndsAlikeOnAllNodes) {
  run_nodes({2, 1}, [](auto group) {
    torch::nn::Linear model(3, 1);
    DistributedDataParallel ddp(model, group, {.shards = 3, .compression = Compression::fp16});
    optim::SGD optimizer(ddp, {.lr = 1});
    const at::Tensor before = model->weight.detach().clone();
    ddp(torch::full({1, 3}, 1e6F)).sum().backward();
    EXPECT_THAT(support::what_of([&] { optimizer.step({.error_if_nonfinite = true}); }),
                HasSubstr("not finite is 'weight', or is too large for float16"));
    optimizer.zero_grad();
    GradScaler scaler({.init_scale = 1 << 18});
    for (const bool updates : {false, false, true}) {
      scaler.scale(ddp(torch::ones({1, 3})).sum()).backward();
      EXPECT_EQ(scaler.step(optimizer), updates);
      scaler.update();
    }
    EXPECT_EQ(scaler.get_scale(), 1 << 16);
    EXPECT_TRUE(torch::allclose(model->weight.detach(), before - 1.0, 1e-5, 1e-6));
  });
}

// Gradients of float32, of which all travel: half the bytes, and with shares, whose weights travel as they are, three
// quarters.
TEST(Compressed, SendsWhatItSays) {
  for (const bool zero1 : {false, true}) {
    SharedText counted;
    ::testing::internal::CaptureStderr();
    run_nodes({2, 1}, [&](auto group) {
      std::int64_t sent[2] = {};
      for (const Compression compression : {Compression::none, Compression::bf16}) {
        torch::nn::Linear model(300, 400);
        DistributedDataParallel ddp(model, group,
                                    {.name = compression == Compression::none ? "whole" : "half",
                                     .shards = 3,
                                     .overlap_bytes = 0,
                                     .compression = compression,
                                     .zero1 = zero1});
        optim::SGD optimizer(ddp, {.lr = 0.1});
        const auto step = [&] {
          ddp(torch::ones({1, 300})).sum().backward();
          optimizer.step();
        };
        step();
        const std::uint64_t before = group->wire()->bytes_sent();
        step();
        const at::Tensor all = torch::full({1}, std::int64_t(group->wire()->bytes_sent() - before), torch::kLong);
        group->all_reduce(all);
        sent[compression == Compression::none ? 0 : 1] = all.template item<std::int64_t>();
      }
      EXPECT_NEAR(double(sent[1]) / double(sent[0]), zero1 ? 0.75 : 0.5, 0.02);
      if (group->rank() == 0) counted.set("2 nodes send each other " + std::to_string(sent[1]) + " bytes in each step");
    });
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(counted.get())) << zero1;
    EXPECT_NE(counted.get(), "");
  }
}

// Nothing is kept of what rounding takes away, so nothing is missing behind a restart.
TEST(Compressed, KeepsItsBitsWhenARankIsKilled) {
  SmallJob job = compressed({.shards = 3, .steps = 5});
  job.overlap_bytes = 1024;
  const std::string undisturbed = nodes_hash({1, 1, 1}, job);
  unsigned instructions = 100;
  for (const Phase phase : {Phase::gather, Phase::update}) {
    const int victim = phase == Phase::gather ? 1 : 2;
    const support::Ambush ambush{.phase = phase, .instructions = instructions += 57, .signal = SIGKILL};
    Machines machines({2, 1});
    const std::vector<int> codes = machines.run([&](const std::shared_ptr<comm::Group>& group) {
      SmallJob mine = job;
      mine.after_step = [&](Engine& engine) {
        if (group->rank() == victim && engine.steps() == 2) lay(ambush, group->node().member.words());
      };
      run_small_job(group, mine);
      return 0;
    });
    for (int rank = 0; rank < int(codes.size()); ++rank)
      EXPECT_EQ(codes[std::size_t(rank)], rank == victim ? -1 : support::kAbortedCode) << rank;
    EXPECT_THAT(machines.run([&](const std::shared_ptr<comm::Group>& group) {
      return run_small_job(group, job) == undisturbed ? 0 : 3;
    }),
                Each(0));
  }
}

TEST(Compressed, GoesOnWithTheNodesThatAreLeft) {
  const SmallJob job = compressed({.shards = 3, .steps = 4});
  const std::string undisturbed = nodes_hash({2, 1}, job);
  SmallJob begin = job;
  begin.steps = 2;
  Machines machines({1, 1, 1});
  const auto run = [&](const SmallJob& which) {
    return machines.run([&](const std::shared_ptr<comm::Group>& group) {
      const std::string hash = run_small_job(group, which);
      return which.steps < job.steps || hash == undisturbed ? 0 : 3;
    });
  };
  EXPECT_THAT(run(begin), Each(0));
  machines.leave(1);
  EXPECT_THAT(run(job), Each(0));
}

}  // namespace
}  // namespace lockstep::parallel
