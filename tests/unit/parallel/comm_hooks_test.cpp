// Communication hooks of the classic path, against the mean that there is without one.

#include "lockstep/parallel/bucket_plan.h"
#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;

TEST(CommHook, SeesEachBucketAndGivesTheGradients) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group);
    int calls = 0;
    ddp.register_comm_hook([&](GradBucket& bucket) -> GradFuture {
      ++calls;
      EXPECT_EQ(bucket.index(), 0u);
      EXPECT_TRUE(bucket.is_last());
      EXPECT_EQ(bucket.buffer().numel(), 6 * 4 + 4 + 4 * 3 + 3);
      EXPECT_EQ(bucket.parameters().size(), 4u);
      EXPECT_TRUE(bucket.parameters()[0].is_same(net->parameters()[3])) << "from the last parameter on";
      const std::vector<at::Tensor> gradients = bucket.gradients();
      EXPECT_EQ(gradients[3].sizes(), (std::vector<std::int64_t>{4, 6}));
      EXPECT_TRUE(torch::equal(gradients[3], net->parameters()[0].grad())) << "this rank's own";
      EXPECT_EQ(gradients[0].data_ptr(), bucket.buffer().data_ptr()) << "views";
      return torch::arange(bucket.buffer().numel(), at::kFloat);
    });
    ddp(batch_of(group->rank(), 0)).sum().backward();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(torch::equal(net->parameters()[3].grad(), torch::arange(3, at::kFloat)));
    EXPECT_TRUE(torch::equal(net->parameters()[0].grad(), torch::arange(19, 43, at::kFloat).view({4, 6})));
  });
}

TEST(CommHook, AllreduceIsWhatThereIsWithoutAHook) {
  for (int ranks : {1, 2, 3})
    run_ranks(RankKind::threads, ranks, [](Groups group) {
      const auto plain = gradients_with(group, kNoHook);
      const auto hooked = gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(group, allreduce_hook); });
      expect_close(hooked, plain, 0);
    });
}

TEST(CommHook, NoopLeavesEachRankItsOwn) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto own = gradients_with(std::make_shared<comm::SingleGroup>(), kNoHook, 1, 0);
    const auto found = gradients_with(
        group, [&](Engine& ddp) { ddp.register_comm_hook(group, noop_hook); }, 1, 0);
    if (group->rank() == 0) expect_close(found, own, 0);  // the single rank's batches are rank 0's
  });
}

TEST(CommHook, HalfPrecisionRoundsAndTheWrapperDoesTheSame) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_with(group, kNoHook);
    const auto with = [&](auto hook) {
      return gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(group, hook); });
    };
    const auto half = with(fp16_compress_hook);
    expect_close(half, plain, 0x1p-10);
    EXPECT_FALSE(torch::equal(half[0], plain[0])) << "nothing was rounded";
    expect_close(with(fp16_compress_wrapper(allreduce_hook)), plain, 0x1p-10);
    const auto brain = with(bf16_compress_hook);
    expect_close(brain, plain, 0x1p-7);
    EXPECT_FALSE(torch::equal(brain[0], half[0]));
    expect_close(with(bf16_compress_wrapper(allreduce_hook)), plain, 0x1p-7);
  });
}

TEST(Quantization, RoundsToStepsOfTheRange) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_with(group, kNoHook, 1);
    const auto with = [&](auto hook) {
      return gradients_with(
          group, [&](Engine& ddp) { ddp.register_comm_hook(group, hook); }, 1);
    };
    double largest = 0;
    for (const at::Tensor& one : plain) largest = std::max(largest, one.abs().max().item<double>());
    const auto whole = with(quantization_pertensor_hook);
    const auto parts =
        with([](comm::Group& all, GradBucket& bucket) { return quantization_perchannel(all, bucket, 8); });
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LE((whole[i] - plain[i]).abs().max().item<double>(), 4 * largest / 255) << i;
      EXPECT_LE((parts[i] - plain[i]).abs().max().item<double>(), 4 * largest / 255) << i;
    }
    EXPECT_FALSE(torch::equal(whole[0], plain[0])) << "nothing was rounded";
    EXPECT_FALSE(torch::equal(whole[0], parts[0])) << "each part has steps of its own";
    expect_close(with(quantization_perchannel_hook), whole, 0);  // a bucket of fewer than 512
  });
}

TEST(Quantization, KeepsZeroAndEmptyAndRefusesWhatIsNotFinite) {
  comm::SingleGroup group;
  const auto mean = [&](const at::Tensor& flat, std::int64_t size) {
    GradBucket bucket(3, flat.clone(), {flat}, true);
    return quantization_perchannel(group, bucket, size).value();
  };
  EXPECT_TRUE(torch::equal(mean(torch::zeros({5}), 2), torch::zeros({5})));
  EXPECT_EQ(mean(torch::zeros({0}), 2).numel(), 0);
  const at::Tensor whole = torch::tensor({0.0f, 255.0f, 0.0f, -255.0f});
  EXPECT_TRUE(torch::equal(mean(whole, 2), whole)) << "each pair has steps of 1";
  const at::Tensor positive = torch::tensor({5.0f, 10.0f});
  EXPECT_LE((mean(positive, 2) - positive).abs().max().item<double>(), 10 / 255.0) << "0 is in the range";
  for (const double bad : {double(INFINITY), double(NAN)})
    EXPECT_EQ(error_of([&] {
                mean(torch::tensor({1.0, bad}), 2);
              }),
              "quantization: the gradients of bucket 3 are not finite, and have no range to be cut into steps");
  EXPECT_EQ(error_of([&] { mean(torch::ones({4}), 0); }), "quantization: bucket_size is 0; more than 0");
}

TEST(CommHook, AFutureIsWaitedForAtTheEndOfBackward) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_with(group, kNoHook);
    for (const auto policy : {std::launch::async, std::launch::deferred})
      expect_close(gradients_with(group,
                                  [&](Engine& ddp) {
                                    ddp.register_comm_hook([group, policy](GradBucket& bucket) -> GradFuture {
                                      return std::async(policy, [group, buffer = bucket.buffer()] {
                                        group->all_reduce(buffer, ReduceOp::mean);
                                        return buffer;
                                      });
                                    });
                                  }),
                   plain, 0);
  });
}

TEST(CommHook, ThenComesBehindAFuture) {
  std::promise<at::Tensor> promise;
  GradFuture future = GradFuture(promise.get_future()).then([](at::Tensor x) { return x + 1; });
  EXPECT_FALSE(future.ready());
  promise.set_value(torch::ones({2}));
  EXPECT_TRUE(torch::equal(future.value(), torch::full({2}, 2.0)));
  EXPECT_TRUE(GradFuture(torch::ones({2})).then([](at::Tensor x) { return x; }).ready());
}

TEST(CommHook, EachBucketHasOneDtype) {
  using Buckets = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(cut_by_dtype({{4, 3, 2}, {1, 0}}, {at::kFloat, at::kFloat, at::kDouble, at::kFloat, at::kDouble}),
            (Buckets{{4, 2}, {3}, {1, 0}}));
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 1), torch::nn::Linear(2, 1));
    net[1]->to(at::kDouble);
    DistributedDataParallel ddp(net, group);
    std::vector<at::ScalarType> seen;
    ddp.register_comm_hook([&](GradBucket& bucket) -> GradFuture {
      seen.push_back(bucket.buffer().scalar_type());
      return allreduce_hook(*group, bucket);
    });
    const at::Tensor x = torch::full({1, 2}, double(group->rank() + 1), at::kDouble);
    ddp.begin_forward();
    (net[0]->as<torch::nn::Linear>()->forward(x.to(at::kFloat)).sum().to(at::kDouble) +
     net[1]->as<torch::nn::Linear>()->forward(x).sum())
        .backward();
    EXPECT_EQ(seen, (std::vector{at::kDouble, at::kFloat}));
    EXPECT_TRUE(torch::equal(net[1]->as<torch::nn::Linear>()->weight.grad(), torch::full({1, 2}, 1.5, at::kDouble)));
    EXPECT_TRUE(torch::equal(net[0]->as<torch::nn::Linear>()->weight.grad(), torch::full({1, 2}, 1.5)));
  });
}

TEST(CommHook, WrongResultsAreRefused) {
  const auto answer = [](CommHook hook) {
    const auto group = std::make_shared<comm::SingleGroup>();
    return error_of([&] { gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(hook); }); });
  };
  EXPECT_EQ(answer([](GradBucket&) -> GradFuture { return at::Tensor(); }),
            "communication hook: it made no tensor of bucket 0, which has 43");
  EXPECT_EQ(answer([](GradBucket&) -> GradFuture { return torch::ones({3}); }),
            "communication hook: it made 3 elements of bucket 0, which has 43");
  EXPECT_EQ(answer([](GradBucket& bucket) -> GradFuture {
              bucket.set_buffer(torch::ones({43, 1}));
              return bucket.buffer();
            }),
            "communication hook: set_buffer() of bucket 0 with 43 elements in 2 dimensions; it wants 43 in one");
}

TEST(CommHook, WhatItThrowsReachesTheOtherRanks) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const std::string said = error_of([&] {
      gradients_with(group, [&](Engine& ddp) {
        ddp.register_comm_hook([&](GradBucket& bucket) -> GradFuture {
          if (group->rank() == 1) throw std::runtime_error("mine");
          return allreduce_hook(*group, bucket);
        });
      });
    });
    EXPECT_NE(said.find("mine"), std::string::npos) << said;
  });
}

TEST(CommHook, IsRegisteredOnceAndNotWithAnOptimizerOfOurs) {
  run_ranks(RankKind::single, 1, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(error_of([&] { ddp.register_comm_hook(CommHook()); }),
              "data parallel: register_comm_hook() without a hook");
    ddp.register_comm_hook(group, allreduce_hook);
    EXPECT_EQ(error_of([&] { ddp.register_comm_hook(group, allreduce_hook); }),
              "data parallel: a communication hook is registered already; a model has one");
    EXPECT_EQ(error_of([&] { optim::SGD optimizer(ddp, {.lr = 0.1}); }),
              "data parallel: a communication hook is registered, and an optimizer of ours exchanges gradients in "
              "memory that the ranks share, without a hook; take one of torch::optim, or .compression instead, between "
              "nodes");
    DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>());
    optim::SGD optimizer(fused, {.lr = 0.1});
    EXPECT_EQ(error_of([&] { fused.register_comm_hook(group, allreduce_hook); }),
              "data parallel: register_comm_hook() is for optimizers of torch::optim; ours exchange gradients in "
              "memory that the ranks share, without a hook, and between nodes as DataParallelOptions::compression "
              "says");
  });
}

TEST(CommHook, WithUnusedParameters) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp.register_comm_hook(group, fp16_compress_hook);
    ddp.begin_forward();
    net[0]->as<torch::nn::Linear>()->forward(batch_of(0, 0)).sum().backward();
    EXPECT_FALSE(net->parameters()[2].grad().defined()) << "nobody used it";
    EXPECT_TRUE(net->parameters()[0].grad().defined());
  });
}

}  // namespace
}  // namespace lockstep::parallel
