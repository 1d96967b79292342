#include "lockstep/parallel/scale_gradients.h"

#include <cmath>

#include "tests/unit/parallel/hook_job.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;

// Ranks with 5, 2 and no samples are one batch of 7, also where the last of two passes averages both.
TEST(ScaleGradients, MakesUnevenRanksOneBatch) {
  run_ranks(RankKind::threads, 3, [](Groups group) {
    const auto rows_of = [](int rank) {
      return batch_of(rank, 0).narrow(0, 0, std::vector{5, 2, 0}[std::size_t(rank)]);
    };
    torch::nn::Sequential net = two_layers(), whole = two_layers();
    whole->to(at::kDouble);
    (torch::cat({whole->forward(rows_of(0).to(at::kDouble)), whole->forward(rows_of(1).to(at::kDouble))})
         .square()
         .sum() /
     7)
        .backward();
    DistributedDataParallel ddp(net, group);
    for (const bool in_parts : {false, true}) {
      net->zero_grad();
      const at::Tensor rows = rows_of(group->rank());
      const std::int64_t first = in_parts ? rows.size(0) / 2 : 0;
      if (in_parts) {
        const auto local = ddp.no_sync();
        ddp(rows.narrow(0, 0, first)).square().sum().backward();
      }
      ddp(rows.narrow(0, first, rows.size(0) - first)).square().sum().backward();
      scale_gradients(ddp, {.denominator = double(rows.size(0))});
      for (std::size_t i = 0; i < net->parameters().size(); ++i)
        EXPECT_TRUE(
            torch::allclose(net->parameters()[i].grad().to(at::kDouble), whole->parameters()[i].grad(), 1e-6, 1e-6))
            << i << in_parts;
    }
  });
}

TEST(ScaleGradients, RefusesOnAllRanksWhatCannotDivide) {
  run_ranks(RankKind::threads, 2, [](Groups group) {
    torch::nn::Sequential net = two_layers();
    DistributedDataParallel ddp(net, group);
    ddp(batch_of(0, 0)).sum().backward();
    const at::Tensor before = net->parameters()[0].grad().clone();
    const auto refusal = [&](double one, double other) {
      return error_of([&] { scale_gradients(ddp, {.denominator = group->rank() == 0 ? one : other}); });
    };
    EXPECT_EQ(refusal(3, -1), "scale_gradients: denominator is -1.000000 on rank 1; finite and at least 0");
    EXPECT_EQ(refusal(NAN, 1), "scale_gradients: denominator is nan on rank 0; finite and at least 0");
    EXPECT_EQ(refusal(0, 0), "scale_gradients: the denominators of all ranks add up to 0");
    EXPECT_TRUE(torch::equal(net->parameters()[0].grad(), before));
    EXPECT_EQ(refusal(3, 1), "no error");
    EXPECT_TRUE(torch::equal(net->parameters()[0].grad(), before * 0.5));
    group->barrier();
  });
  DistributedDataParallel fused(two_layers(), std::make_shared<comm::SingleGroup>());
  DistributedDataParallel joins(two_layers(), std::make_shared<comm::SingleGroup>());
  EXPECT_NE(error_of([&] { joins.join([&] { scale_gradients(joins, {.denominator = 1}); }); }).find("within join()"),
            std::string::npos);
  optim::SGD ours(fused, {.lr = 0.1});
  EXPECT_NE(error_of([&] { scale_gradients(fused, {.denominator = 1}); }).find("optimizer.step({.denominator"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::parallel
