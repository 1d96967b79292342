// The options of PyTorch's DistributedDataParallel, by what they change of a training with torch::optim.

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <optional>

#include "lockstep/parallel/bucket_plan.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using Plan = std::vector<std::vector<std::size_t>>;

// Gradients of a few steps with these options.
std::vector<at::Tensor> gradients_of(const Groups& group, const DataParallelOptions& options, bool in_place = false) {
  torch::nn::Sequential net = two_layers();
  DistributedDataParallel ddp(net, group, options);
  std::vector<at::Tensor> seen;
  for (int step = 0; step < 3; ++step) {
    net->zero_grad(/*set_to_none=*/!in_place);
    ddp(batch_of(group->rank(), step)).square().mean().backward();
    for (const at::Tensor& parameter : net->parameters()) seen.push_back(parameter.grad().clone());
  }
  return seen;
}

TEST(BucketPlan, SizesAreThoseOfPyTorch) {
  const std::size_t mib = std::size_t(1) << 20;
  EXPECT_EQ(bucket_capacities({}), (std::vector{mib, 25 * mib}));
  EXPECT_EQ(bucket_capacities({.bucket_cap_mb = 4}), (std::vector{4 * mib, 4 * mib}));
  EXPECT_EQ(bucket_capacities({.first_bucket_mb = 0.5}), (std::vector{mib / 2, 25 * mib}));
  EXPECT_EQ(bucket_capacities({.bucket_cap_mb = 4, .first_bucket_mb = 2}), (std::vector{2 * mib, 4 * mib}));
  EXPECT_EQ(bucket_capacities({.bucket_cap_mb_list = {1, 3, 2}}), (std::vector{mib, 3 * mib, 2 * mib}));
  EXPECT_EQ(plan_buckets({4, 4, 4, 4, 4, 4}, {4, 12, 8}), (Plan{{5}, {4, 3, 2}, {1, 0}}));
  EXPECT_EQ(plan_buckets({4, 4, 4, 4}, {1, 4}), (Plan{{3}, {2}, {1}, {0}})) << "the last size goes on";
  EXPECT_EQ(plan_buckets({4, 0, 4}, {4}), (Plan{{2}, {1, 0}})) << "an empty parameter";
}

TEST(BucketPlan, IsFilledFromTheLastParameter) {
  EXPECT_EQ(plan_buckets({}, {10}), Plan{});
  EXPECT_EQ(plan_buckets({4, 4, 4}, {8}), (Plan{{2, 1}, {0}}));
  EXPECT_EQ(plan_buckets({100, 1}, {8}), (Plan{{1, 0}}));
  EXPECT_EQ(plan_buckets({1, 100}, {8}), (Plan{{1}, {0}}));
}

TEST(BucketPlan, WhatIsOutOfRangeIsNamed) {
  EXPECT_EQ(error_of([] { bucket_capacities({.bucket_cap_mb = 0}); }),
            "data parallel: buckets.first_bucket_mb is 0.000000; more than 0");
  EXPECT_EQ(error_of([] { bucket_capacities({.bucket_cap_mb = -1, .first_bucket_mb = 1}); }),
            "data parallel: buckets.bucket_cap_mb is -1.000000; more than 0");
  EXPECT_EQ(error_of([] {
              bucket_capacities({.bucket_cap_mb_list = {1, 0}});
            }),
            "data parallel: buckets.bucket_cap_mb_list is 0.000000; more than 0");
  EXPECT_EQ(error_of([] { bucket_capacities({.bucket_cap_mb = 1, .bucket_cap_mb_list = {1}}); }),
            "data parallel: buckets.bucket_cap_mb_list beside bucket_cap_mb; give one of them");
  EXPECT_EQ(bucket_capacities({.bucket_cap_mb = 1e300})[1], std::size_t(1) << 62);
}

TEST(DdpOptions, BucketsOfAnySizesGiveTheSameBits) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_of(group, {});
    for (const BucketOptions& sizes :
         {BucketOptions{.bucket_cap_mb = 1e-5}, BucketOptions{.bucket_cap_mb_list = {1e-5, 1}}}) {
      expect_close(gradients_of(group, {.buckets = sizes}), plain, 0);
      std::size_t buckets = 0;
      torch::nn::Sequential net = two_layers();
      DistributedDataParallel ddp(net, group, {.buckets = sizes});
      ddp.register_comm_hook([&](GradBucket& bucket) -> GradFuture {
        ++buckets;
        return allreduce_hook(*group, bucket);
      });
      ddp(batch_of(0, 0)).sum().backward();
      EXPECT_EQ(buckets, sizes.bucket_cap_mb ? 4u : 2u);
    }
  });
}

TEST(DdpOptions, GradientsAsPartsOfTheBuckets) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_of(group, {});
    for (const bool in_place : {false, true})
      expect_close(gradients_of(group, {.gradient_as_bucket_view = true}, in_place), plain, 0);
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = true});
    ddp(batch_of(group->rank(), 0)).sum().backward();
    const at::Tensor last = net->parameters()[3].grad(), before = net->parameters()[2].grad();
    EXPECT_EQ(last.data_ptr<float>() + last.numel(), before.data_ptr<float>()) << "one behind the other";
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    optimizer.zero_grad(/*set_to_none=*/false);
    ddp(batch_of(group->rank(), 1)).sum().backward();
    EXPECT_TRUE(net->parameters()[3].grad().is_same(last)) << "and they stay there";
    optimizer.zero_grad();
    EXPECT_FALSE(net->parameters()[3].grad().defined());
  });
}

TEST(DdpOptions, GradientsAsPartsOfTheBucketsOutliveAJoin) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = true});
    at::Tensor kept;
    ddp.join([&] {
      for (int step = 0; step < 3 - 2 * group->rank(); ++step) {
        net->zero_grad();
        ddp(batch_of(group->rank(), step)).square().mean().backward();
        kept = net->parameters()[0].grad().clone();
      }
    });
    EXPECT_TRUE(torch::equal(net->parameters()[0].grad(), kept));
  });
}

TEST(DdpOptions, BuffersAndStartMayStayEachRanksOwn) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::BatchNorm1d norm(1);
    {
      const torch::NoGradGuard no_grad;
      norm->weight.fill_(float(group->rank() + 1));
    }
    DistributedDataParallel ddp(norm, group, {.broadcast_buffers = false, .init_sync = false});
    EXPECT_EQ(norm->weight.item<int>(), group->rank() + 1);
    ddp(torch::tensor({{0.0f}, {2.0f * float(group->rank())}}));
    ddp.begin_evaluation();
    EXPECT_NEAR(norm->running_mean.item<float>(), 0.1 * group->rank(), 1e-6);
    EXPECT_TRUE(ddp.debug().ignored_options().empty());
  });
}

// PyTorch's idiom: a scope around the wrapper. With .amp it is the wrapper that casts.
TEST(DdpOptions, WithoutAmpTheCallersAutocastCounts) {
  run_ranks(RankKind::single, 1, [](Groups group) {
    for (const bool ours : {false, true}) {
      torch::nn::Linear net(3, 2);
      DistributedDataParallel ddp(net, group);
      std::optional<optim::SGD> sgd;
      if (ours) sgd.emplace(ddp, optim::SGDOptions{.lr = 0.1});
      {
        const amp::Autocast scope({.dtype = at::kBFloat16});
        const at::Tensor out = ddp(torch::ones({4, 3}));
        EXPECT_EQ(out.scalar_type(), at::kBFloat16);
        out.sum().backward();
      }
      EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
      if (ours) sgd->step();
      EXPECT_EQ(net->weight.scalar_type(), at::kFloat);
    }
  });
}

TEST(DdpOptions, TheGroupAndTheDevice) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    DistributedDataParallel ddp(two_layers(), {.process_group = group, .device_ids = {at::kCPU}});
    EXPECT_EQ(&ddp.group(), group.get());
  });
  const auto alone = std::make_shared<comm::SingleGroup>();
  const auto refusal = [&](DataParallelOptions options, Groups group) {
    return error_of([&] { DistributedDataParallel(two_layers(), group, options); });
  };
  EXPECT_EQ(refusal({}, nullptr),
            "data parallel: no group; give world.group(), of lockstep::init(), as second argument or as process_group");
  EXPECT_EQ(refusal({.process_group = std::make_shared<comm::SingleGroup>()}, alone),
            "data parallel: process_group is another group than the second argument; give one of them");
  EXPECT_EQ(
      refusal({.device_ids = {at::Device(at::kCUDA, 0)}}, alone),
      "data parallel: device_ids names 'cuda:0', but parameter '0.weight' is on 'cpu'; move the model there before "
      "it is wrapped, by to()");
  EXPECT_EQ(refusal({.device_ids = {at::kCPU, at::kCPU}}, alone),
            "data parallel: device_ids names 2 devices; a process has one replica, lockstep::DataParallel several");
  EXPECT_EQ(refusal({.mixed_precision = {.reduce_dtype = at::kDouble}}, alone),
            "data parallel: mixed_precision.reduce_dtype is Double; Half and BFloat16 are possible");
  EXPECT_EQ(refusal({.mixed_precision = {.param_dtype = at::kBFloat16}}, alone),
            "data parallel: mixed_precision.param_dtype is not there; DataParallelOptions::amp computes forward and "
            "backward in 16 bits where that is safe");
  EXPECT_EQ(refusal({.mixed_precision = {.buffer_dtype = at::kFloat}}, alone),
            "data parallel: mixed_precision.buffer_dtype is not there; module buffers have the dtype that they were "
            "made with");
}

TEST(DdpOptions, OtherOptionsOnAnotherRankAreNamed) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const double size = group->rank() == 1 ? 2 : 1;
    const std::string said =
        error_of([&] { DistributedDataParallel(two_layers(), group, {.buckets = {.bucket_cap_mb = size}}); });
    EXPECT_NE(said.find("rank 1 has another model than rank 0: other sizes of buckets"), std::string::npos) << said;
  });
}

TEST(DdpOptions, AutotuneOnOneRankOnlyIsNamed) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const std::string said =
        error_of([&] { DistributedDataParallel(two_layers(), group, {.buckets = {.autotune = group->rank() == 1}}); });
    EXPECT_NE(said.find("rank 1 has another model than rank 0: another buckets.autotune"), std::string::npos) << said;
  });
}

TEST(DdpOptions, ReduceDtypeIsThatOfTheCompressHook) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    for (const bool half : {true, false}) {
      const auto hooked = gradients_with(
          group, [&](Engine& ddp) { ddp.register_comm_hook(group, half ? fp16_compress_hook : bf16_compress_hook); });
      expect_close(gradients_of(group, {.mixed_precision = {.reduce_dtype = half ? at::kHalf : at::kBFloat16}}), hooked,
                   0);
    }
  });
}

// ---- static_graph, skip_all_reduce_unused_params

// w and side, of which a pass may leave one out, or use w again in a backward within backward.
struct Branches : torch::nn::Module {
  at::Tensor w = register_parameter("w", torch::full({2}, 2.0));
  at::Tensor side = register_parameter("side", torch::full({2}, 3.0));
  at::Tensor idle = register_parameter("idle", torch::zeros({3}));
  at::Tensor forward(const at::Tensor& x, bool with_side) { return with_side ? x * w + side : x * w; }
};

at::Tensor branch_input(const Groups& group) { return torch::full({2}, float(group->rank() + 1)); }

TEST(StaticGraph, FindsUnusedParametersInTheFirstBackward) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(net, group, {.static_graph = true, .buckets = {.bucket_cap_mb = 1e-6}});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(branch_input(group), group->rank() == 0).sum().backward();
      EXPECT_EQ(net->w.grad()[0].item<float>(), 1.5) << step;
      EXPECT_EQ(net->side.grad()[0].item<float>(), 0.5) << step << ", of rank 0 alone";
      EXPECT_FALSE(net->idle.grad().defined()) << step;
    }
  });
}

TEST(StaticGraph, AnotherGraphIsRefusedByName) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(net, group, {.static_graph = true});
    ddp(branch_input(group), false).sum().backward();
    const std::string said = error_of([&] { ddp(branch_input(group), true).sum().backward(); });
    EXPECT_NE(said.find("parameter 'side' got 1 gradients in this backward and 0 in the first one"), std::string::npos)
        << said;
  });
}

TEST(StaticGraph, AllowsBackwardsWithinBackward) {
  struct Again : torch::autograd::Function<Again> {  // x * w, whose backward runs another one, which adds to w.grad()
    static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
      context->save_for_backward({x, w});
      return x * w;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list grads) {
      const auto saved = context->get_saved_variables();
      const torch::AutoGradMode with_graph(true);
      const at::Tensor x = saved[0].detach().requires_grad_();
      (x * saved[1]).backward(grads[0]);
      return {x.grad(), at::Tensor()};
    }
  };
  struct Net : Branches {
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = Again::apply(x * w, w) * side;
      return y + idle[0];  // last, so that backward comes to it first, and the bucket of w is sent early
    }
  };
  for (const bool fixed : {true, false})
    run_ranks(RankKind::threads, 2, [fixed](Groups group) {
      const auto net = std::make_shared<Net>();
      DistributedDataParallel ddp(net, group, {.static_graph = fixed, .buckets = {.bucket_cap_mb = 1e-6}});
      const auto pass = [&] {
        net->zero_grad();
        ddp(branch_input(group)).sum().backward();
      };
      if (!fixed) {
        const std::string said = error_of(pass);
        EXPECT_NE(said.find("parameter 'w' got a further gradient within one backward"), std::string::npos) << said;
        return;
      }
      for (int step = 0; step < 3; ++step) {
        pass();
        EXPECT_EQ(net->w.grad()[0].item<float>(), 1.5 * 3 * 2 * 2) << step;  // of x w^2 side
      }
    });
}

TEST(SkippedBuckets, AreThoseWithoutAGradient) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(
        net, group,
        {.find_unused_parameters = true, .skip_all_reduce_unused_params = true, .buckets = {.bucket_cap_mb = 1e-6}});
    std::vector<std::size_t> sent;
    ddp.register_comm_hook([&](GradBucket& bucket) -> GradFuture {
      sent.push_back(bucket.index());
      return allreduce_hook(*group, bucket);
    });
    ddp(branch_input(group), false).sum().backward();
    EXPECT_EQ(sent, (std::vector<std::size_t>{2})) << "w alone, which is the last of three";
    EXPECT_EQ(net->w.grad()[0].item<float>(), 1.5);
    EXPECT_FALSE(net->side.grad().defined());
    const std::string said = error_of([&] { ddp.join([] {}); });
    EXPECT_NE(said.find("join() with skip_all_reduce_unused_params"), std::string::npos) << said;
  });
}

TEST(SkippedBuckets, MustBeTheSameOnAllRanks) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(
        net, group,
        {.find_unused_parameters = true, .skip_all_reduce_unused_params = true, .buckets = {.bucket_cap_mb = 1e-6}});
    // One uses w, the other side: each sends one bucket of two numbers, which meet.
    const std::string said = error_of([&] {
      ddp.begin_forward();
      (group->rank() == 0 ? net->w : net->side).sum().backward();
    });
    EXPECT_NE(said.find("' got a gradient on another rank and none on this one"), std::string::npos) << said;
  });
}

// ---- what has nothing to do

std::vector<std::string> names_of(const std::vector<std::string>& ignored) {
  std::vector<std::string> names;
  for (const std::string& one : ignored) names.push_back(one.substr(0, one.find(':')));
  return names;
}

TEST(IgnoredOptions, AreToldOnceAndByAQuery) {
  using Names = std::vector<std::string>;
  const auto group = std::make_shared<comm::SingleGroup>();
  const DataParallelOptions all{.broadcast_buffers = false,
                                .init_sync = false,
                                .static_graph = true,
                                .gradient_as_bucket_view = true,
                                .skip_all_reduce_unused_params = true,
                                .mixed_precision = {.reduce_dtype = at::kHalf},
                                .buckets = {.bucket_cap_mb = 1}};
  testing::internal::CaptureStderr();
  torch::nn::Sequential net = two_layers();
  DistributedDataParallel ddp(net, group, all);
  ddp(batch_of(0, 0)).sum().backward();
  ddp(batch_of(0, 0)).sum().backward();
  EXPECT_EQ(names_of(ddp.debug().ignored_options()),
            (Names{"skip_all_reduce_unused_params", "gradient_as_bucket_view"}));
  ddp.register_comm_hook(group, allreduce_hook);
  EXPECT_EQ(names_of(ddp.debug().ignored_options()),
            (Names{"skip_all_reduce_unused_params", "mixed_precision.reduce_dtype", "gradient_as_bucket_view"}));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said,
            "lockstep: hint: DistributedDataParallel without effect: skip_all_reduce_unused_params: without "
            "find_unused_parameters each parameter gets a gradient\n"
            "lockstep: hint: DistributedDataParallel without effect: gradient_as_bucket_view: with "
            "mixed_precision.reduce_dtype what was exchanged has another dtype\n");

  testing::internal::CaptureStderr();
  DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>(), all);
  optim::SGD optimizer(fused, {.lr = 0.1});
  EXPECT_EQ(names_of(fused.debug().ignored_options()),
            (Names{"broadcast_buffers", "init_sync", "static_graph", "gradient_as_bucket_view",
                   "skip_all_reduce_unused_params", "mixed_precision.reduce_dtype", "buckets"}));
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 7) << lines;
  EXPECT_TRUE(DistributedDataParallel(two_layers(), group).debug().ignored_options().empty());
  const DataParallelOptions both{.find_unused_parameters = true, .static_graph = true};
  EXPECT_EQ(names_of(DistributedDataParallel(two_layers(), group, both).debug().ignored_options()),
            Names{"find_unused_parameters"});
}

TEST(IgnoredOptions, OfOursWithoutAnOptimizerOfOurs) {
  const DataParallelOptions ours{
      .name = "net", .shards = 4, .seed = 1, .ema = EmaOptions{}, .overlap_bytes = 1, .reduction = Reduction::fast};
  run_ranks(RankKind::threads, 2, [&](Groups group) {
    DistributedDataParallel ddp(two_layers(), group, ours);
    EXPECT_EQ(names_of(ddp.debug().ignored_options()),
              (std::vector<std::string>{"name", "shards", "seed", "ema", "overlap_bytes", "reduction"}));
  });
  DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>(), ours);
  optim::SGD optimizer(fused, {.lr = 0.1});
  EXPECT_EQ(names_of(fused.debug().ignored_options()), (std::vector<std::string>{"overlap_bytes", "reduction"}));
}

// Each shard's backward would average and add, so the gradients would be those of two batches.
TEST(IgnoredOptions, ALoopOverMoreShardsThanRanksIsRefused) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    DistributedDataParallel several(two_layers(), group, {.shards = 4});
    EXPECT_THAT(error_of([&] { several.begin_shard(several.local_shards().first); }),
                testing::HasSubstr("4 shards on 2 ranks without an optimizer of lockstep::optim"));
    DistributedDataParallel one(two_layers(), group);
    one.begin_shard(group->rank());
    one(batch_of(group->rank(), 0)).sum().backward();
  });
}

}  // namespace
}  // namespace lockstep::parallel
