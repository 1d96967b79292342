// Clipping where the norm of the gradients is not a number or not finite: as PyTorch's clip_grad_norm_.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/support/small_job.h"
#include "tests/support/what_of.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using support::what_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Its gradients are what it is given.
struct PlainImpl : torch::nn::Module {
  at::Tensor first = register_parameter("first", torch::zeros({4}));
  at::Tensor second = register_parameter("second", torch::zeros({2}));
  at::Tensor forward(const at::Tensor& x) { return (first * x.slice(0, 0, 4)).sum() + (second * x.slice(0, 4)).sum(); }
};
TORCH_MODULE(Plain);

struct Norms {
  std::vector<double> gradients;
  double max_norm;
};

class NonFiniteNorm : public testing::TestWithParam<Norms> {};
INSTANTIATE_TEST_SUITE_P(Gradients, NonFiniteNorm,
                         testing::Values(Norms{{1, 2, 3, 4, 1000, 6}, 1}, Norms{{1, 2, 3, 4, 5, 6}, 1e9},
                                         Norms{{1, 2, kNan, 4, 1000, 6}, 1}, Norms{{1, 2, kInf, 4, 1000, 6}, 1},
                                         Norms{{1, -kInf, kNan, 4, 1000, 6}, 1}, Norms{{1, 2, kInf, 4, 5, 6}, kInf},
                                         Norms{{1, 2, 3, 4, 5, 6}, kInf}, Norms{{0, 0, 0, 0, 0, 0}, 1}));

TEST_P(NonFiniteNorm, ClipsAsTorch) {
  const at::Tensor gradients = torch::tensor(GetParam().gradients, torch::kFloat);
  Plain theirs;
  theirs(gradients).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), GetParam().max_norm);
  for (const int ranks : {1, 2})
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      Plain ours;
      DistributedDataParallel ddp(ours, group);
      optim::SGD optimizer(ddp, {.lr = 1});
      ddp(gradients).backward();
      optimizer.step({.max_norm = GetParam().max_norm});
      EXPECT_TRUE(torch::allclose(ours->first, -theirs->first.grad(), 1e-6, 0, /*equal_nan=*/true))
          << ours->first << theirs->first.grad();
      EXPECT_TRUE(torch::allclose(ours->second, -theirs->second.grad(), 1e-6, 0, true))
          << ours->second << theirs->second.grad();
      const double recorded = ddp.last_record().gradient_norm;
      EXPECT_TRUE(std::isnan(norm)   ? std::isnan(recorded)
                  : std::isinf(norm) ? recorded == norm
                                     : std::abs(recorded - norm) < 1e-3 * norm + 1e-9)
          << recorded << " and " << norm;
    });
}

TEST(Clipping, ByOtherNormsAndByValueIsTorchs) {
  const at::Tensor gradients = torch::tensor({1.0, -2.0, 3.0, 4.0, -50.0, 6.0}, torch::kFloat);
  for (const double norm_type : {0.5, 1.0, 3.0, kInf})
    for (const double max_value : {0.0, 0.4}) {
      Plain theirs;
      theirs(gradients).backward();
      const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), 2, norm_type);
      if (max_value > 0) torch::nn::utils::clip_grad_value_(theirs->parameters(), max_value);
      run_ranks(RankKind::processes, 2, [&](auto group) {
        Plain model;
        DistributedDataParallel ddp(model, group);
        optim::SGD optimizer(ddp, {.lr = 1});
        ddp(gradients).backward();
        optimizer.step({.max_norm = 2, .norm_type = norm_type, .max_value = max_value});
        for (const auto& ours : model->named_parameters())
          EXPECT_TRUE(torch::allclose(ours.value(), -theirs->named_parameters()[ours.key()].grad(), 1e-6))
              << ours.key() << " norm type " << norm_type;
        EXPECT_NEAR(ddp.last_record().gradient_norm, norm, 1e-5 * norm);
      });
    }
}

// Shards with different numbers of samples, one with none: the weights are those of one batch with all of them.
TEST(Denominator, MakesUnevenShardsOneBatch) {
  constexpr int kShards = 4;
  const std::vector<std::int64_t> samples = {3, 1, 0, 5};
  const auto rows_of = [&](int shard) {
    const std::int64_t first = std::accumulate(samples.begin(), samples.begin() + shard, std::int64_t(0));
    return torch::arange(54, torch::kFloat).reshape({9, 6}).sin().slice(0, first, first + samples[std::size_t(shard)]);
  };
  Plain whole;
  for (int shard = 0; shard < kShards; ++shard)
    for (const at::Tensor& row : rows_of(shard).unbind()) whole(row).backward();
  std::string alone;
  for (const int ranks : {1, 2, 4}) {
    support::SharedText hash;
    run_ranks(ranks == 1 ? RankKind::single : RankKind::processes, ranks, [&](auto group) {
      Plain model;
      DistributedDataParallel ddp(model, group, {.shards = kShards});
      optim::SGD optimizer(ddp, {.lr = 1});
      double mine = 0;
      for (int shard = ddp.local_shards().first; shard < ddp.local_shards().last; ++shard) {
        ddp.begin_shard(shard);
        at::Tensor sum = ddp(torch::zeros({6}));
        for (const at::Tensor& row : rows_of(shard).unbind()) sum = sum + ddp(row);
        sum.backward();
        mine += double(samples[std::size_t(shard)]);
      }
      optimizer.step({.denominator = mine});
      for (const auto& ours : model->named_parameters())
        EXPECT_TRUE(torch::allclose(ours.value(), whole->named_parameters()[ours.key()].grad() / -9, 1e-5, 1e-6))
            << ours.key();
      if (group->rank() == 0) hash.set(ddp.weights_hash());
    });
    if (ranks == 1) alone = hash.get();
    EXPECT_EQ(hash.get(), alone) << ranks;
  }
}

TEST(Denominator, OfSomeRanksOnlyOrOfNothingIsRefusedByAll) {
  run_ranks(RankKind::processes, 2, [](auto group) {
    Plain model;
    DistributedDataParallel ddp(model, group);
    optim::SGD optimizer(ddp, {.lr = 1});
    const auto refusal = [&](const optim::StepOptions& options) {
      ddp(torch::ones({6})).backward();
      const std::string why = what_of([&] { optimizer.step(options); });
      optimizer.zero_grad();
      return why;
    };
    const bool first = group->rank() == 0;
    EXPECT_THAT(refusal(first ? optim::StepOptions{.denominator = 3} : optim::StepOptions{}),
                HasSubstr("step 1: some ranks gave a denominator and some gave none. Nothing was updated"));
    EXPECT_THAT(refusal({.denominator = 0}), HasSubstr("add up to 0"));
    EXPECT_THAT(refusal({.max_norm = first ? 1.0 : 0.0}),
                HasSubstr("step 1: the ranks gave step() different max_norm"));
    optimizer.set_lr(first ? 1 : 0.5);
    EXPECT_THAT(refusal({}), HasSubstr("step 1: rank 1 has other options in param_groups() than rank 0"));
    optimizer.set_lr(1);
    ddp(torch::ones({6})).backward();
    optimizer.step({.denominator = first ? 3 : 1});
    EXPECT_TRUE(torch::equal(model->first, torch::full({4}, -0.5))) << model->first;
  });
}

TEST(ErrorIfNonfinite, ThrowsOnAllRanksBeforeAnythingIsWritten) {
  for (const Amp amp : {Amp::none, Amp::bf16})
    for (const double max_norm : {0.0, 1.0})
      run_ranks(RankKind::processes, 3, [&](auto group) {
        support::SmallNet model;
        DistributedDataParallel ddp(model, group, {.amp = amp});
        optim::Adam optimizer(ddp, {.lr = 0.1});
        const auto backward = [&](double scale) {
          const at::Tensor out = ddp(torch::randn({4, 20}));
          (out.sum() + model->fc2->bias.sum().to(torch::kFloat) * (group->rank() == 1 ? scale : 1)).backward();
        };
        const optim::StepOptions options{.max_norm = max_norm, .error_if_nonfinite = true};
        backward(1);
        optimizer.step(options);
        EXPECT_GT(ddp.last_record().gradient_norm, 0);
        const std::string before = ddp.state().hash();
        for (int turn = 0; turn < 20; ++turn) {
          backward(turn % 2 == 0 ? kInf : kNan);
          EXPECT_THAT(
              what_of([&] { optimizer.step(options); }),
              AllOf(HasSubstr("step 2"), HasSubstr("gradient"), HasSubstr("'fc2.bias', in shard 1, of rank 1.")));
          EXPECT_EQ(ddp.state().hash(), before);
          optimizer.zero_grad();
        }
        backward(1);
        optimizer.step(options);
        EXPECT_EQ(ddp.steps(), 2u);
        group->barrier();
      });
}

}  // namespace
}  // namespace lockstep::parallel
