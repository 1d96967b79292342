// The running average of the weights: its numbers, its bits, and a model that shows it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lockstep/state/hash.h"
#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep {
namespace {

using support::RankKind;
using support::run_ranks;
using support::SmallNet;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, at::Tensor>;

Tensors cloned(const Tensors& tensors) {
  Tensors clones;
  for (const auto& [name, tensor] : tensors) clones.emplace(name, tensor.clone());
  return clones;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(torch::equal(tensor, b.at(name))) << name;
}

class Ema : public testing::TestWithParam<Amp> {};
INSTANTIATE_TEST_SUITE_P(Amp, Ema, testing::Values(Amp::none, Amp::bf16),
                         [](const auto& info) { return info.param == Amp::bf16 ? "bf16" : "none"; });

// torchvision's ExponentialMovingAverage with its operations, buffers and counts included.
TEST_P(Ema, IsTorchvisionsBitForBit) {
  for (const bool use_buffers : {true, false}) {
    Tensors expected;
    const double decay = 0.9;
    const support::SmallJob job{.amp = GetParam(),
                                .ema = parallel::EmaOptions{.decay = decay, .interval = 2, .use_buffers = use_buffers},
                                .after_step = [&](parallel::Engine& ddp) {
                                  const torch::NoGradGuard no_grad;
                                  const Tensors now = cloned(ddp.state_dict());
                                  const std::uint64_t done = ddp.steps();
                                  if (done <= 1) expected = now;
                                  for (auto& [name, average] : expected) {
                                    const bool buffer = name.starts_with("bn.running") || name.starts_with("bn.num");
                                    if (buffer && !use_buffers)
                                      average.copy_(now.at(name));
                                    else if (done > 1 && done % 2 == 1)
                                      average.copy_(decay * average + (1 - decay) * now.at(name));
                                  }
                                  expect_equal(ddp.ema().state_dict(), expected);
                                }};
    run_ranks(RankKind::single, 1, [&](const auto& group) { support::run_small_job(group, job); });
  }
}

TEST_P(Ema, HasTheSameBitsOnAnyNumberOfRanks) {
  std::string alone;
  for (const int ranks : {1, 2, 3, 4}) {
    support::SharedText hash;
    const support::SmallJob job{.amp = GetParam(),
                                .ema = parallel::EmaOptions{.decay = 0.9, .interval = 2},
                                .after_step = [&](parallel::Engine& ddp) {
                                  if (ddp.steps() != 6 || ddp.group().rank() != 0) return;
                                  hash.set(state::tensors_hash(ddp.ema().state_dict()) + ddp.state().hash());
                                }};
    support::hash_of(ranks, job);
    if (ranks == 1) alone = hash.get();
    EXPECT_EQ(hash.get(), alone) << ranks;
    EXPECT_EQ(alone.size(), 64u);
  }
}

TEST_P(Ema, IsShownByTheModelAsLongAsItIsUsed) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::manual_seed(4);
    SmallNet model;
    DistributedDataParallel ddp(model, group, {.amp = GetParam(), .ema = parallel::EmaOptions{.decay = 0.5}});
    optim::SGD optimizer(ddp, {.lr = 0.1, .momentum = 0.9});
    const auto step = [&] {
      const auto batch = support::small_batch(ddp.next_step(), {0, 1});
      torch::nn::functional::cross_entropy(ddp(batch.data), batch.target).backward();
      optimizer.step();
    };
    for (int i = 0; i < 3; ++i) step();
    const std::string before = ddp.state().hash();
    const Tensors average = cloned(ddp.ema().state_dict());
    const Tensors weights = cloned(ddp.state_dict());
    EXPECT_FALSE(torch::equal(average.at("fc1.weight"), weights.at("fc1.weight")));
    model->eval();
    const at::Tensor x = torch::ones({3, 20});
    const at::Tensor plain = ddp(x);
    {
      const auto averaged = ddp.ema().use();
      const at::Tensor shown = ddp(x);
      EXPECT_FALSE(torch::equal(shown, plain));
      expect_equal(ddp.ema().state_dict(), average);
      EXPECT_TRUE(torch::equal(model->bn->running_mean, average.at("bn.running_mean")));
      EXPECT_TRUE(torch::equal(model->fc1->weight, average.at("fc1.weight").to(model->fc1->weight.dtype())));
      EXPECT_THAT(support::what_of([&] { auto twice = ddp.ema().use(); }), HasSubstr("shows its averaged weights"));
      model->train();
      EXPECT_THAT(support::what_of([&] { ddp(x); }), HasSubstr("shows its averaged weights"));
      model->eval();
    }
    EXPECT_TRUE(torch::equal(ddp(x), plain));
    expect_equal(ddp.state_dict(), weights);
    EXPECT_EQ(ddp.state().hash(), before);
    model->train();
    step();
    EXPECT_EQ(ddp.steps(), 4u);
  });
}

TEST(Ema, OutlivesTheEngine) {
  run_ranks(RankKind::single, 1, [](auto group) {
    Tensors kept;
    {
      SmallNet model;
      DistributedDataParallel ddp(model, group, {.ema = EmaOptions{}});
      optim::SGD optimizer(ddp);
      kept = ddp.ema().state_dict();
    }
    group.reset();
    EXPECT_TRUE(torch::equal(kept.at("bn.running_var"), torch::ones({300})));
    EXPECT_TRUE(torch::isfinite(kept.at("fc1.weight")).all().template item<bool>());
  });
}

// Each rank averages its own slice, by its own options the average would be torn; and a shard would drop what the seed
// of its rank says.
TEST(Ema, OtherOptionsOrSeedsOfARankAreRefusedOnAll) {
  const auto refused = [](auto options_of) {
    run_ranks(RankKind::processes, 2, [&](auto group) {
      torch::nn::Linear model(2, 2);
      DistributedDataParallel ddp(model, group, options_of(std::uint64_t(group->rank())));
      EXPECT_THAT(support::what_of([&] { optim::SGD optimizer(ddp); }),
                  AllOf(HasSubstr("rank 1 "), HasSubstr("has other options of the average or another seed")));
    });
  };
  using Options = DataParallelOptions;
  refused([](std::uint64_t rank) { return Options{.seed = rank}; });
  refused([](std::uint64_t rank) { return Options{.reduction = rank == 0 ? Reduction::exact : Reduction::fast}; });
  refused([](std::uint64_t rank) { return Options{.compression = rank == 0 ? Compression::none : Compression::bf16}; });
  refused([](std::uint64_t rank) { return Options{.zero1 = rank == 0}; });
  refused([](std::uint64_t rank) { return Options{.zero1 = true, .zero1_copy = rank == 0}; });
  refused([](std::uint64_t rank) { return Options{.ema = EmaOptions{.interval = 1 + rank}}; });
  refused([](std::uint64_t rank) { return Options{.ema = EmaOptions{.decay = rank == 0 ? 0.9 : 0.99}}; });
  refused([](std::uint64_t rank) { return Options{.ema = EmaOptions{.steps_per_epoch = 10 + rank}}; });
  refused([](std::uint64_t rank) { return Options{.ema = EmaOptions{.warmup_steps = rank}}; });
  refused([](std::uint64_t rank) { return Options{.ema = EmaOptions{.use_buffers = rank == 0}}; });
}

TEST(Ema, IsAskedForOrRefused) {
  run_ranks(RankKind::single, 1, [](auto group) {
    torch::nn::Linear model(2, 2);
    EXPECT_THAT(
        support::what_of([&] { DistributedDataParallel(model, group, {.ema = parallel::EmaOptions{.decay = 2}}); }),
        HasSubstr("ema.decay is 2, must be in [0, 1]"));
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp);
    EXPECT_THAT(support::what_of([&] { ddp.ema().state_dict(); }), HasSubstr("ema().state_dict() needs"));
  });
}

}  // namespace
}  // namespace lockstep
