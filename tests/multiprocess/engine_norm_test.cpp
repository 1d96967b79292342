// Clipping where the norm of the gradients is not a number or not finite: as PyTorch's clip_grad_norm_.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <limits>

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
          EXPECT_THAT(what_of([&] { optimizer.step(options); }),
                      AllOf(HasSubstr("step 2"), HasSubstr("'fc2.bias'"), HasSubstr("gradient")));
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
