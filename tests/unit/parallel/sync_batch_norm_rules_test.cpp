// When SyncBatchNorm and converted layers talk to the other ranks, what they refuse, and in which words.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/single/single_group.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "tests/support/ranks.h"
#include "tests/support/usage_error.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;

constexpr std::int64_t kWidth = 5;

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double relative) {
  ASSERT_EQ(found.sizes(), wanted.sizes());
  const double largest = wanted.abs().max().item<double>();
  EXPECT_LE((found - wanted).abs().max().item<double>(), relative * largest);
}

TEST(SyncBatchNorm, EvaluationAndAGroupOfOneAreBatchNorms) {
  const at::Tensor x = at::rand({6, kWidth});
  const auto expect_plain = [&](auto group, bool training) {
    torch::nn::BatchNorm1d plain(kWidth);
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kWidth), group);
    auto converted = convert_sync_batchnorm(torch::nn::BatchNorm1d(kWidth), group);
    for (torch::nn::Module* module : std::vector<torch::nn::Module*>{plain.get(), norm.get(), converted.get()})
      module->train(training);
    const at::Tensor mine = x.narrow(0, 0, 4 + group->rank());  // another batch on each rank, and no message
    const at::Tensor wanted = plain(mine);
    EXPECT_TRUE(torch::equal(norm(mine), wanted) && torch::equal(converted->forward(mine), wanted));
    EXPECT_TRUE(torch::equal(norm->running_var, plain->running_var));
  };
  run_ranks(RankKind::threads, 2, [&](auto group) { expect_plain(group, false); });
  run_ranks(RankKind::single, 1, [&](auto group) { expect_plain(group, true); });
  EXPECT_ANY_THROW(SyncBatchNorm(torch::nn::BatchNormOptions(2), std::make_shared<comm::SingleGroup>())(at::ones(2)));
}

TEST(SyncBatchNorm, ALayerWithoutStatisticsUsesItsOwnBatchInEvaluation) {
  const at::Tensor x = at::rand({6, kWidth});
  run_ranks(RankKind::threads, 2, [&](auto group) {
    const auto options = torch::nn::BatchNormOptions(kWidth).track_running_stats(false);
    torch::nn::BatchNorm1d plain(options);
    auto converted = convert_sync_batchnorm(torch::nn::BatchNorm1d(options), group);
    plain->eval();
    converted->eval();
    const at::Tensor mine = x.narrow(0, 0, 3 + group->rank());
    EXPECT_TRUE(torch::equal(converted->forward(mine), plain(mine)));
  });
}

TEST(SyncBatchNorm, WithoutGradientsItSynchronizesTheSame) {
  const at::Tensor x = at::rand({6, kWidth});
  run_ranks(RankKind::threads, 2, [&](auto group) {
    auto norm = convert_sync_batchnorm(torch::nn::BatchNorm1d(kWidth), group);
    const at::Tensor mine = x.narrow(0, group->rank() * 3, 3);
    const at::Tensor wanted = norm->forward(mine).detach();
    {
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(torch::equal(norm->forward(mine), wanted));
    }
    const c10::InferenceMode inference;
    EXPECT_TRUE(torch::equal(norm->forward(mine), wanted));
  });
}

TEST(SyncBatchNorm, ABatchOfOtherChannelsIsNamedWithItsRank) {
  std::vector<std::string> said(3);
  const at::Tensor x = at::rand({4, kWidth});
  run_ranks(RankKind::threads, 3, [&](auto group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kWidth), group);
    try {
      norm(group->rank() == 1 ? x.narrow(1, 0, 3) : x);
    } catch (const Error& error) {
      said[std::size_t(group->rank())] = error.what();
    }
  });
  for (const std::string& text : said)
    EXPECT_THAT(text, ::testing::HasSubstr("SyncBatchNorm: rank 1 has a batch of 3 channels, the layer has 5"));
}

TEST(SyncBatchNorm, LayersOfOtherWidthsAreAnErrorThatNamesBothRanks) {
  run_ranks(RankKind::threads, 2, [&](auto group) {
    const std::int64_t channels = 3 + group->rank();
    SyncBatchNorm norm(torch::nn::BatchNormOptions(channels), group);
    try {
      norm(at::ones({2, channels}));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("rank 0"), ::testing::HasSubstr("rank 1")));
    }
  });
}

TEST(SyncBatchNorm, OneValuePerChannelOfAllRanksIsPyTorchsError) {
  run_ranks(RankKind::threads, 2, [&](auto group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(2), group);
    try {
      norm(at::ones({group->rank(), 2}));
      ADD_FAILURE();
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("Expected more than 1 value per channel when training"));
    }
    const at::Tensor one = norm(at::tensor({float(group->rank()), 1.0f}).view({1, 2}));
    EXPECT_TRUE(one.isfinite().all().item<bool>());
    EXPECT_EQ(norm(at::ones({0, 2})).numel(), 0) << "nobody has a sample";
    EXPECT_TRUE(norm->running_mean.isfinite().all().template item<bool>());
  });
}

TEST(SyncBatchNorm, ItsGradientIsNotDifferentiatedAgain) {
  run_ranks(RankKind::threads, 2, [&](auto group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(2), group);
    const at::Tensor x = at::rand({3, 2}).requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({norm(x).pow(2).sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
    EXPECT_ANY_THROW(gradient.sum().backward());
  });
}

struct TypedMember : torch::nn::Cloneable<TypedMember> {
  TypedMember() { TypedMember::reset(); }
  void reset() override { norm = register_module("norm", torch::nn::BatchNorm1d(kWidth)); }
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
};

TEST(ConvertSyncBatchNorm, ReachesMembersAndSequentialsAndNothingElse) {
  const at::Tensor x = at::rand({6, kWidth});
  torch::nn::BatchNorm1d reference(kWidth);
  const at::Tensor whole = reference(x).detach();
  run_ranks(RankKind::threads, 2, [&](auto group) {
    const at::Tensor mine = x.narrow(0, group->rank() * 3, 3), wanted = whole.narrow(0, group->rank() * 3, 3);
    auto member = convert_sync_batchnorm(std::make_shared<TypedMember>(), group);
    expect_near(member->forward(mine).detach(), wanted, 1e-6);
    EXPECT_EQ(synchronized_layer(*member), "norm");
    auto listed = convert_sync_batchnorm(torch::nn::Sequential(torch::nn::BatchNorm1d(kWidth)), group);
    expect_near(listed->forward(mine).detach(), wanted, 1e-6);
    torch::nn::BatchNorm1d other(kWidth);
    EXPECT_FALSE(torch::allclose(other(mine), wanted)) << "nobody converted it";
    EXPECT_EQ(synchronized_layer(*other), "");
    auto copy = std::dynamic_pointer_cast<TypedMember>(member->clone());
    EXPECT_EQ(synchronized_layer(*copy), "") << "a clone is converted anew";
    SyncBatchNorm layer(torch::nn::BatchNormOptions(kWidth), group);
    EXPECT_EQ(synchronized_layer(*layer->clone()), "the module itself");
    group->barrier();
  });
}

TEST(ConvertSyncBatchNorm, RefusesWhatItCannotKnowAgain) {
  const auto group = std::make_shared<comm::SingleGroup>();
  const auto options = torch::nn::BatchNormOptions(2).affine(false).track_running_stats(false);
  torch::nn::Sequential plain(torch::nn::Linear(2, 2), torch::nn::BatchNorm1d(options));
  EXPECT_THAT(testing::usage_error([&] { convert_sync_batchnorm(plain, group); }),
              ::testing::HasSubstr("module '1' is a BatchNorm with neither weights nor running statistics"));
  EXPECT_THAT(testing::usage_error([&] { convert_sync_batchnorm(plain, nullptr); }), ::testing::HasSubstr("no group"));
}

TEST(ConvertSyncBatchNorm, TrainingAfterTheGroupHasGoneIsAnError) {
  auto group = std::make_shared<comm::SingleGroup>();
  auto norm = convert_sync_batchnorm(torch::nn::BatchNorm1d(2), group);
  EXPECT_TRUE(norm->forward(at::rand({3, 2})).defined());
  group.reset();
  EXPECT_THAT(testing::usage_error([&] {
                norm->forward(at::rand({3, 2}));
              }),
              ::testing::HasSubstr("keep the group as long as the model"));
}

}  // namespace
}  // namespace lockstep::parallel
