// Hooks with a state: with enough of everything they are exact, and what they leave out is not lost.

#include <torch/serialize/archive.h>

#include <sstream>

#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;

TEST(PowerSGD, OfFullRankIsTheMean) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto plain = gradients_with(group, kNoHook);
    for (const bool same_shape : {false, true})
      for (const bool warm : {false, true}) {
        const PowerSGDOptions options{.matrix_approximation_rank = 4,
                                      .start_powerSGD_iter = 1,
                                      .min_compression_rate = 0.01,
                                      .warm_start = warm,
                                      .orthogonalization_epsilon = 1e-12,
                                      .batch_tensors_with_same_shape = same_shape};
        const auto state = std::make_shared<PowerSGDState>(group, options);
        expect_close(gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(state, powerSGD_hook); }), plain,
                     1e-5);
        EXPECT_EQ(state->iter(), 3);
        EXPECT_EQ(state->compression_stats().numel_before, 2 * 43);
      }
  });
}

TEST(PowerSGD, TheErrorIsWhatWasLeftOutAndComesNext) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const PowerSGDOptions options{.start_powerSGD_iter = 0, .min_compression_rate = 0.5};
    const auto state = std::make_shared<PowerSGDState>(group, options);
    const auto own = gradients_with(
        group, [&](Engine& ddp) { ddp.register_comm_hook(group, noop_hook); }, 1, 0);
    const auto got = gradients_with(
        group, [&](Engine& ddp) { ddp.register_comm_hook(state, powerSGD_hook); }, 1, 0);
    const at::Tensor error = state->state_dict().at("error_dict.0");
    const at::Tensor of_the_first_weight = error.narrow(0, 19, 24).view({4, 6});
    EXPECT_TRUE(torch::allclose(of_the_first_weight, own[0] - got[0], 1e-5, 1e-6));
    EXPECT_GT(of_the_first_weight.abs().max().item<float>(), 1e-3) << "rank 1 is not all of it";
  });
}

using Saved = std::map<std::string, at::Tensor>;

// Steps 0 to 2 and 3 to 5, in one go and with a state that was saved in between.
template <class State, class Options, class Hook>
void expect_goes_on(const Groups& group, const Options& options, Hook hook) {
  const auto whole = std::make_shared<State>(group, options);
  const auto all = gradients_with(
      group, [&](Engine& ddp) { ddp.register_comm_hook(whole, hook); }, 6);
  const auto first = std::make_shared<State>(group, options);
  gradients_with(
      group, [&](Engine& ddp) { ddp.register_comm_hook(first, hook); }, 3);
  const Saved saved = first->state_dict();
  const auto second = std::make_shared<State>(group, options);
  second->load_state_dict(saved);
  const auto rest = gradients_with(
      group, [&](Engine& ddp) { ddp.register_comm_hook(second, hook); }, 3, 3);
  expect_close(rest, {all.begin() + 12, all.end()}, 0);
  EXPECT_EQ(second->iter(), whole->iter());
  Saved damaged = saved;
  damaged.erase("iter");
  EXPECT_NE(error_of([&] { second->load_state_dict(damaged); }).find("the state has no 'iter'"), std::string::npos);
  damaged = saved;
  damaged["error_dict.x"] = torch::ones({1});
  EXPECT_NE(error_of([&] { second->load_state_dict(damaged); }).find("'error_dict.x', which is unknown here"),
            std::string::npos);
  damaged = saved;
  damaged["iter"] = torch::ones({1});
  EXPECT_NE(error_of([&] { second->load_state_dict(damaged); }).find("'iter' of the state is not a list of int64"),
            std::string::npos);
}

TEST(HookState, IsSavedAndRestored) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    PowerSGDOptions options{.start_powerSGD_iter = 1, .min_compression_rate = 0.5};
    expect_goes_on<PowerSGDState>(group, options, powerSGD_hook);
    expect_goes_on<PowerSGDState>(group, options, batched_powerSGD_hook);
    options.warm_start = false;  // random numbers in each step
    expect_goes_on<PowerSGDState>(group, options, powerSGD_hook);
    expect_goes_on<TopKState>(group, TopKOptions{.ratio = 0.1}, topk_hook);
  });
}

TEST(HookState, OfAnotherModelIsRefused) {
  const auto with_error = [](const Groups& group, auto state, auto hook) {
    Saved saved = state->state_dict();
    saved["error_dict.0"] = torch::ones({7});
    state->load_state_dict(saved);
    return error_of([&] { gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(state, hook); }); });
  };
  const Groups one = std::make_shared<comm::SingleGroup>(), two = std::make_shared<comm::SingleGroup>();
  const auto power = std::make_shared<PowerSGDState>(one, PowerSGDOptions{.start_powerSGD_iter = 0});
  EXPECT_EQ(with_error(one, power, powerSGD_hook),
            "PowerSGD: the state has an error of 7 elements for bucket 0, which has 43; it is of another model");
  EXPECT_EQ(with_error(two, std::make_shared<TopKState>(two), topk_hook),
            "top-k: the state has an error of 7 elements for bucket 0, which has 43; it is of another model");
}

TEST(HookState, OptionsOutOfRangeAreNamed) {
  const auto group = std::make_shared<comm::SingleGroup>();
  const auto power = [&](PowerSGDOptions options) { return error_of([&] { PowerSGDState(group, options); }); };
  EXPECT_EQ(power({.matrix_approximation_rank = 0}), "PowerSGD: matrix_approximation_rank is 0; at least 1");
  EXPECT_EQ(power({.start_powerSGD_iter = -1}), "PowerSGD: start_powerSGD_iter is -1; at least 0");
  EXPECT_NE(power({.min_compression_rate = 0}).find("min_compression_rate"), std::string::npos);
  EXPECT_NE(power({.orthogonalization_epsilon = -1}).find("orthogonalization_epsilon"), std::string::npos);
  EXPECT_NE(error_of([&] { TopKState(group, {.ratio = 0}); }).find("ratio"), std::string::npos);
  EXPECT_NE(error_of([&] { TopKState(group, {.ratio = 1.5}); }).find("ratio"), std::string::npos);
  EXPECT_NE(error_of([&] { PostLocalSGDState(group, nullptr, {.start_localSGD_iter = -1}); }).find("-1"),
            std::string::npos);
  EXPECT_NE(error_of([&] { PeriodicModelAverager(group, {.period = 0}); }).find("period is 0"), std::string::npos);
}

enum class Way { topk, power_sgd, batched_power_sgd, fp16, bf16, pertensor, perchannel, post_local_sgd, zero, join };
constexpr Way kWays[] = {Way::topk,      Way::power_sgd,  Way::batched_power_sgd, Way::fp16, Way::bf16,
                         Way::pertensor, Way::perchannel, Way::post_local_sgd,    Way::zero, Way::join};

void register_hook(Engine& ddp, const Groups& group, Way way) {
  const auto power = [&] {
    return std::make_shared<PowerSGDState>(group,
                                           PowerSGDOptions{.start_powerSGD_iter = 2, .min_compression_rate = 0.5});
  };
  if (way == Way::topk)
    ddp.register_comm_hook(std::make_shared<TopKState>(group, TopKOptions{.ratio = 0.3}), topk_hook);
  if (way == Way::power_sgd) ddp.register_comm_hook(power(), powerSGD_hook);
  if (way == Way::batched_power_sgd) ddp.register_comm_hook(power(), bf16_compress_wrapper(batched_powerSGD_hook));
  if (way == Way::fp16) ddp.register_comm_hook(group, fp16_compress_hook);
  if (way == Way::bf16) ddp.register_comm_hook(group, bf16_compress_hook);
  if (way == Way::pertensor) ddp.register_comm_hook(group, quantization_pertensor_hook);
  if (way == Way::perchannel) ddp.register_comm_hook(group, quantization_perchannel_hook);
  if (way == Way::post_local_sgd) {
    const PostLocalSGDOptions options{.start_localSGD_iter = 2};
    ddp.register_comm_hook(std::make_shared<PostLocalSGDState>(group, nullptr, options), post_localSGD_hook);
  }
}

// Rank 0's weights behind a few steps; in a join rank r has three batches more than rank r - 1.
std::vector<at::Tensor> weights_by(Way way) {
  std::vector<at::Tensor> found;
  run_ranks(RankKind::threads, 3, [&](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    PeriodicModelAverager averager(group, PeriodicModelAveragerOptions{2, 2});
    PostLocalSGDOptimizer local(sgd, averager);
    ZeroRedundancyOptimizer<torch::optim::Adam> zero(net->parameters(), group, torch::optim::AdamOptions(0.01));
    register_hook(ddp, group, way);
    const auto train = [&] {
      for (int step = 0; step < (way == Way::join ? 3 * (group->rank() + 1) : 8); ++step) {
        net->zero_grad();
        ddp(batch_of(group->rank(), step)).square().mean().backward();
        if (way == Way::post_local_sgd)
          local.step();
        else if (way == Way::zero)
          zero.step();
        else
          sgd.step();
      }
    };
    if (way == Way::join)
      ddp.join(train);
    else
      train();
    if (group->rank() == 0)
      for (const at::Tensor& parameter : net->parameters()) found.push_back(parameter.detach().clone());
  });
  return found;
}

TEST(SameBitsInEveryRun, OfHooksZeroAndJoin) {
  for (const Way way : kWays) {
    const std::vector<at::Tensor> first = weights_by(way), second = weights_by(way);
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], second[i])) << int(way);
    EXPECT_FALSE(torch::equal(first[0], two_layers()->parameters()[0])) << "nothing was trained";
  }
}

TEST(TopK, OfAllIsTheMean) {
  run_ranks(RankKind::threads, 3, [](Groups group) {
    const auto plain = gradients_with(group, kNoHook);
    const auto state = std::make_shared<TopKState>(group, TopKOptions{.ratio = 1});
    expect_close(gradients_with(group, [&](Engine& ddp) { ddp.register_comm_hook(state, topk_hook); }), plain, 1e-6);
  });
}

TEST(TopK, SendsTheLargestAndKeepsTheRest) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const auto state = std::make_shared<TopKState>(group, TopKOptions{.ratio = 0.25});
    const at::Tensor mine =
        group->rank() == 0 ? torch::tensor({1.0f, -8.0f, 2.0f, 3.0f}) : torch::tensor({4.0f, 1.0f, 2.0f, 0.0f});
    GradBucket bucket(0, mine.clone(), {}, true);
    EXPECT_TRUE(torch::equal(topk_hook(*state, bucket).value(), torch::tensor({2.0f, -4.0f, 0.0f, 0.0f})));
    const at::Tensor left = state->state_dict().at("error_dict.0");
    EXPECT_TRUE(torch::equal(
        left, group->rank() == 0 ? torch::tensor({1.0f, 0.0f, 2.0f, 3.0f}) : torch::tensor({0.0f, 1.0f, 2.0f, 0.0f})));
    GradBucket next(0, torch::zeros({4}), {}, true);
    EXPECT_TRUE(torch::equal(topk_hook(*state, next).value(), torch::tensor({0.0f, 0.0f, 1.0f, 1.5f})))
        << "what was left came next";
  });
}

// ---- post-local SGD

TEST(PostLocalSGD, AveragesGradientsAtFirstAndWeightsLater) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    const PostLocalSGDOptions options{.start_localSGD_iter = 1, .post_local_gradient_allreduce = false};
    const auto state = std::make_shared<PostLocalSGDState>(group, nullptr, options);
    const auto plain = gradients_with(group, kNoHook, 2);
    const auto own = gradients_with(
        group, [&](Engine& ddp) { ddp.register_comm_hook(group, noop_hook); }, 2);
    const auto found = gradients_with(
        group, [&](Engine& ddp) { ddp.register_comm_hook(state, post_localSGD_hook); }, 2);
    expect_close({found.begin(), found.begin() + 4}, {plain.begin(), plain.begin() + 4}, 0);
    expect_close({found.begin() + 4, found.end()}, {own.begin() + 4, own.end()}, 0);
    EXPECT_EQ(state->iter(), 1);

    PeriodicModelAverager averager(group, {.period = 2, .warmup_steps = 1});
    std::vector<float> seen;
    at::Tensor weight = torch::full({1}, float(group->rank()), at::TensorOptions().requires_grad(true));
    for (int step = 0; step < 4; ++step) {
      averager.average_parameters({weight});
      seen.push_back(weight.item<float>());
      const torch::NoGradGuard no_grad;
      weight += float(group->rank());
    }
    const float rank = float(group->rank());
    EXPECT_EQ(seen, (std::vector{rank, 1.0f, 1 + rank, 2.0f}));
  });
}

// The optimizer is one of the rank's own; behind the warm-up of one step the second and the fourth average.
// Processes, since ThreadSanitizer takes what libtorch makes at the first use of an archive for races of threads.
TEST(PostLocalSGD, OptimizerStepsThenAveragesAndGoesOnFromItsState) {
  run_ranks(RankKind::processes, 2, [](Groups group) {
    const at::Tensor weight = torch::zeros({1}, at::TensorOptions().requires_grad(true));
    torch::optim::SGD sgd({weight}, torch::optim::SGDOptions(1));
    PeriodicModelAverager averager(group, {.period = 2, .warmup_steps = 1});
    PostLocalSGDOptimizer optimizer(sgd, averager);
    std::vector<float> seen;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      EXPECT_FALSE(weight.grad().defined());
      (weight * float(group->rank() + 1)).sum().backward();
      optimizer.step();
      seen.push_back(weight.item<float>());
    }
    const float own = -float(group->rank() + 1);
    EXPECT_EQ(seen, (std::vector{own, -3.0f, -3.0f + own, -6.0f}));

    torch::serialize::OutputArchive saved, alone;
    optimizer.save(saved);
    sgd.save(alone);
    std::ostringstream bytes, without;
    saved.save_to(bytes);
    alone.save_to(without);
    const auto load = [](PostLocalSGDOptimizer& to, const std::string& from) {
      torch::serialize::InputArchive archive;
      archive.load_from(from.data(), from.size());
      to.load(archive);
    };
    PeriodicModelAverager fresh(group, {.period = 2, .warmup_steps = 1});
    PostLocalSGDOptimizer again(sgd, fresh);
    EXPECT_NE(error_of([&] { load(again, without.str()); }).find("has no averager_step"), std::string::npos);
    EXPECT_EQ(fresh.step, 0);
    load(again, bytes.str());
    EXPECT_EQ(fresh.step, 4);
  });
}

}  // namespace
}  // namespace lockstep::parallel
