// SyncBatchNorm on ranks that are threads, against BatchNorm on the batches of all ranks together.

#include "lockstep/parallel/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/amp/autocast.h"
#include "tests/support/own_group.h"
#include "tests/support/ranks.h"

namespace lockstep::parallel {
namespace {

using support::RankKind;
using support::run_ranks;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::int64_t kChannels = 5;
using Sizes = std::vector<std::int64_t>;

struct SyncCase {
  const char* name;
  Sizes sizes;                                  ///< of a sample, behind the channels
  std::vector<std::int64_t> split = {3, 0, 6};  ///< samples by rank
  at::ScalarType dtype = at::kFloat;
  bool channels_last = false;
  bool affine = true;
  bool statistics = true;
  std::optional<double> momentum = 0.1;
};
void PrintTo(const SyncCase& one, std::ostream* out) { *out << one.name; }

// What a layer makes of two batches.
struct NormResult {
  at::Tensor output;    ///< of both, along dimension 0
  at::Tensor gradient;  ///< of the input
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  at::Tensor mean;
  at::Tensor variance;
  at::Tensor batches;
};

torch::nn::BatchNormOptions options_of(const SyncCase& one) {
  return torch::nn::BatchNormOptions(kChannels)
      .affine(one.affine)
      .track_running_stats(one.statistics)
      .momentum(one.momentum);
}

at::Tensor in_format(const at::Tensor& tensor, bool channels_last) {
  if (!channels_last) return tensor;
  return tensor.contiguous(tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast);
}

template <class Norm>
NormResult pass_twice(Norm& norm, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> outputs, input_gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor input = inputs[i].detach().clone().requires_grad_(true);
    const at::Tensor output = norm->forward(input);
    output.backward(gradients[i]);
    outputs.push_back(output.detach().contiguous());
    input_gradients.push_back(input.grad().contiguous());
  }
  return {at::cat(outputs),
          at::cat(input_gradients),
          norm->weight.defined() ? norm->weight.grad() : at::Tensor(),
          norm->bias.defined() ? norm->bias.grad() : at::Tensor(),
          norm->running_mean,
          norm->running_var,
          norm->num_batches_tracked};
}

template <class Norm>
void draw_weights(Norm& norm, const SyncCase& one) {
  if (one.affine) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(at::linspace(0.5, 2, kChannels));
    norm->bias.copy_(at::linspace(-1, 1, kChannels));
  }
  if (one.dtype == at::kDouble) norm->to(at::kDouble);
}

double ulp_of_bf16(double value) { return std::ldexp(1.0, std::max(std::ilogb(value), -126) - 7); }

void expect_close(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.defined(), wanted.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  ASSERT_EQ(found.scalar_type(), wanted.scalar_type()) << what;
  const at::Tensor ours = found.to(at::kDouble).flatten();
  const at::Tensor theirs = wanted.to(at::kDouble).flatten();
  if (found.scalar_type() == at::kBFloat16) {
    for (std::int64_t i = 0; i < ours.numel(); ++i)
      ASSERT_NEAR(ours[i].item<double>(), theirs[i].item<double>(), ulp_of_bf16(theirs[i].item<double>())) << what << i;
    return;
  }
  const double largest = theirs.abs().max().item<double>();
  EXPECT_LE((ours - theirs).abs().max().item<double>(), (found.scalar_type() == at::kDouble ? 1e-12 : 1e-6) * largest)
      << what;
}

class SyncBatchNormParity : public ::testing::TestWithParam<SyncCase> {
 protected:
  void SetUp() override {
    torch::manual_seed(1);
    const SyncCase& one = GetParam();
    Sizes sizes = {0, kChannels};
    for (const std::int64_t samples : one.split) sizes[0] += samples;
    sizes.insert(sizes.end(), one.sizes.begin(), one.sizes.end());
    for (int batch = 0; batch < 2; ++batch) {
      inputs_.push_back((at::randn(sizes) * 3 + 2).to(one.dtype));
      gradients_.push_back(at::randn(sizes).to(one.dtype));
    }
  }

  std::vector<at::Tensor> part(const std::vector<at::Tensor>& all, std::size_t rank) const {
    const SyncCase& one = GetParam();
    std::int64_t first = 0;
    for (std::size_t peer = 0; peer < rank; ++peer) first += one.split[peer];
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tensor : all)
      parts.push_back(in_format(tensor.narrow(0, first, one.split[rank]).clone(), one.channels_last));
    return parts;
  }

  // Of both batches, rank by rank; back into the order of the batches.
  at::Tensor together(const std::vector<NormResult>& ranks, at::Tensor NormResult::*member) const {
    std::vector<at::Tensor> first, second;
    for (const NormResult& rank : ranks) {
      const auto halves = (rank.*member).chunk(2);
      first.push_back(halves[0]);
      second.push_back((rank.*member).numel() == 0 ? rank.*member : halves[1]);
    }
    return at::cat({at::cat(first), at::cat(second)});
  }

  template <class Make>
  std::vector<NormResult> on_ranks(const Make& make) const {
    std::vector<NormResult> results(GetParam().split.size());
    run_ranks(RankKind::threads, int(results.size()), [&](std::shared_ptr<comm::Group> group) {
      const auto rank = std::size_t(group->rank());
      auto norm = make(group);
      draw_weights(norm, GetParam());
      results[rank] = pass_twice(norm, part(inputs_, rank), part(gradients_, rank));
    });
    return results;
  }

  void expect_equal(const std::vector<NormResult>& ranks, const NormResult& whole) const {
    expect_close(together(ranks, &NormResult::output), whole.output, "output ");
    expect_close(together(ranks, &NormResult::gradient), whole.gradient, "gradient ");
    if (GetParam().affine) {
      at::Tensor weight = at::zeros_like(whole.weight_gradient), bias = at::zeros_like(whole.bias_gradient);
      for (const NormResult& rank : ranks) {
        weight += rank.weight_gradient;
        bias += rank.bias_gradient;
      }
      expect_close(weight, whole.weight_gradient, "weight ");
      expect_close(bias, whole.bias_gradient, "bias ");
    }
    for (const NormResult& rank : ranks) {
      expect_close(rank.mean, whole.mean, "mean ");
      expect_close(rank.variance, whole.variance, "variance ");
      if (!GetParam().statistics) continue;
      EXPECT_EQ(rank.batches.item<std::int64_t>(), 2);
      EXPECT_TRUE(torch::equal(rank.mean, ranks.front().mean) && torch::equal(rank.variance, ranks.front().variance));
    }
  }

  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> gradients_;
};

template <class Norm>
NormResult of_whole(const SyncCase& one, const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& gradients) {
  Norm norm(options_of(one));
  draw_weights(norm, one);
  return pass_twice(norm, inputs, gradients);
}

TEST_P(SyncBatchNormParity, IsBatchNormOnTheBatchesOfAllRanks) {
  const SyncCase& one = GetParam();
  const NormResult whole = one.sizes.size() == 3   ? of_whole<torch::nn::BatchNorm3d>(one, inputs_, gradients_)
                           : one.sizes.size() == 2 ? of_whole<torch::nn::BatchNorm2d>(one, inputs_, gradients_)
                                                   : of_whole<torch::nn::BatchNorm1d>(one, inputs_, gradients_);
  const auto layer = [&](const auto& group) { return SyncBatchNorm(options_of(one), group); };
  const std::vector<NormResult> found = on_ranks(layer);
  expect_equal(found, whole);
  const std::vector<NormResult> again = on_ranks(layer);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    EXPECT_TRUE(torch::equal(found[rank].output, again[rank].output));
    EXPECT_TRUE(torch::equal(found[rank].gradient, again[rank].gradient));
  }
  if (!one.affine && !one.statistics) return;  // such a layer cannot be converted
  const auto converted = [&](auto norm) {
    return [&, norm](const auto& group) {
      return convert_sync_batchnorm(std::dynamic_pointer_cast<typename decltype(norm)::ContainedType>(norm->clone()),
                                    group);
    };
  };
  if (one.sizes.size() == 3) expect_equal(on_ranks(converted(torch::nn::BatchNorm3d(options_of(one)))), whole);
  if (one.sizes.size() == 2) expect_equal(on_ranks(converted(torch::nn::BatchNorm2d(options_of(one)))), whole);
  if (one.sizes.size() < 2) expect_equal(on_ranks(converted(torch::nn::BatchNorm1d(options_of(one)))), whole);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SyncBatchNormParity,
    ::testing::Values(SyncCase{"rows", {}}, SyncCase{"rows_double", {}, {4, 2}, at::kDouble},
                      SyncCase{"sequences", {7}, {1, 2, 3, 4}}, SyncCase{"pictures", {9, 6}},
                      SyncCase{"pictures_double", {9, 6}, {3, 0, 6}, at::kDouble},
                      SyncCase{"pictures_last", {9, 6}, {2, 5}, at::kFloat, true},
                      SyncCase{"pictures_last_double", {9, 6}, {0, 5, 1}, at::kDouble, true},
                      SyncCase{"pictures_bf16", {9, 6}, {4, 0, 3}, at::kBFloat16},
                      SyncCase{"pictures_last_bf16", {9, 6}, {4, 3}, at::kBFloat16, true},
                      SyncCase{"volumes", {3, 4, 5}}, SyncCase{"volumes_last", {3, 4, 5}, {1, 2}, at::kDouble, true},
                      SyncCase{"plain", {4, 4}, {3, 2}, at::kDouble, false, false, false},
                      SyncCase{"no_statistics", {4, 4}, {3, 2}, at::kDouble, false, true, false},
                      SyncCase{"no_weights", {4, 4}, {3, 2}, at::kDouble, false, false, true},
                      SyncCase{"cumulative", {4, 4}, {3, 2}, at::kDouble, false, true, true, std::nullopt}),
    [](const auto& info) { return std::string(info.param.name); });

// A linear layer, which gives 16 bits, and the normalization behind it.
template <class Norm>
NormResult step_under_autocast(const at::Tensor& x, const at::Tensor& gradient, Norm norm) {
  torch::nn::Linear first(3, kChannels);
  {
    const torch::NoGradGuard no_grad;
    first->weight.copy_(at::linspace(-1, 1, 3 * kChannels).view({kChannels, 3}));
    first->bias.zero_();
  }
  at::Tensor hidden, output;
  {
    // Without the cache of casts, which all threads of a process share inside libtorch: ranks are threads here.
    const amp::Autocast autocast(amp::AutocastOptions{.dtype = at::kBFloat16, .cache_enabled = false});
    hidden = first(x);
    hidden.retain_grad();
    output = norm->forward(hidden);
  }
  output.backward(gradient.to(at::kBFloat16));
  return {output.detach(),    hidden.grad(),     norm->weight.grad(),      norm->bias.grad(),
          norm->running_mean, norm->running_var, norm->num_batches_tracked};
}

TEST(SyncBatchNorm, UnderAutocastAWholeStepIsBatchNorms) {
  const at::Tensor x = at::arange(24, at::kFloat).sin().view({8, 3});
  const at::Tensor gradient = at::arange(8 * kChannels, at::kFloat).cos().view({8, kChannels});
  const NormResult whole = step_under_autocast(x, gradient, torch::nn::BatchNorm1d(kChannels));
  EXPECT_EQ(whole.output.scalar_type(), at::kBFloat16);
  EXPECT_EQ(whole.weight_gradient.scalar_type(), at::kFloat);
  std::vector<NormResult> ranks(2);
  run_ranks(RankKind::threads, 2, [&](auto group) {
    const std::int64_t first = group->rank() * 3, count = 3 + 2 * group->rank();
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kChannels), group);
    ranks[std::size_t(group->rank())] =
        step_under_autocast(x.narrow(0, first, count), gradient.narrow(0, first, count), norm);
  });
  expect_close(at::cat({ranks[0].output, ranks[1].output}), whole.output, "output ");
  expect_close(at::cat({ranks[0].gradient, ranks[1].gradient}), whole.gradient, "gradient ");
  expect_close(ranks[0].weight_gradient + ranks[1].weight_gradient, whole.weight_gradient, "weight ");
  expect_close(ranks[0].bias_gradient + ranks[1].bias_gradient, whole.bias_gradient, "bias ");
  for (const NormResult& rank : ranks) {
    expect_close(rank.mean, whole.mean, "mean ");
    expect_close(rank.variance, whole.variance, "variance ");
  }
}

TEST(SyncBatchNorm, SendsOneMessageForwardAndOneBackward) {
  run_ranks(RankKind::threads, 2, [](auto inner) {
    const auto group = std::make_shared<support::CountingGroup>(inner);
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kChannels), group);
    const at::Tensor pictures = at::ones({3, kChannels, 4, 6}).requires_grad_();
    const at::Tensor output = norm->forward(pictures);
    EXPECT_THAT(group->calls, ElementsAre(Pair("all_gather", 1)));
    output.backward(at::ones_like(output));
    EXPECT_THAT(group->calls, ElementsAre(Pair("all_gather", 1), Pair("all_reduce", 1)));
  });
}

TEST(SyncBatchNorm, OfNoValuesOnAnyRankHasZerosForGradients) {
  run_ranks(RankKind::threads, 2, [](auto group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kChannels), group);
    norm->forward(at::zeros({0, kChannels, 4, 6}).requires_grad_()).sum().backward();
    EXPECT_TRUE(at::equal(norm->weight.grad(), at::zeros({kChannels})));
    EXPECT_TRUE(at::equal(norm->bias.grad(), at::zeros({kChannels})));
    EXPECT_TRUE(at::equal(norm->running_var, at::ones({kChannels})));
  });
}

TEST(SyncBatchNorm, TakesStridesThatAreNeitherOrder) {
  const at::Tensor pictures = at::rand({3, kChannels, 4, 6}, at::kDouble);
  run_ranks(RankKind::threads, 2, [&](auto group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kChannels), group);
    norm->to(at::kDouble);
    const at::Tensor turned = norm->forward(pictures.transpose(2, 3));
    const at::Tensor sliced = norm->forward(at::cat({pictures, pictures}, 3).slice(3, 0, 6));
    expect_close(turned, sliced.transpose(2, 3), "output ");
  });
}

}  // namespace
}  // namespace lockstep::parallel
