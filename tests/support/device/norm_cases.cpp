#include "tests/support/device/norm_cases.h"

#include <ATen/ops/batch_norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>
#include <vector>

#include "lockstep/parallel/sync_batch_norm.h"
#include "tests/support/what_of.h"

namespace lockstep::support {
namespace {

using parallel::convert_sync_batchnorm;
using parallel::SyncBatchNorm;

constexpr std::int64_t kNormChannels = 5;

struct NormCase {
  const char* name;
  std::vector<std::int64_t> sizes;                ///< of a sample, behind the channels
  std::vector<std::int64_t> samples = {3, 0, 6};  ///< by rank
  at::ScalarType dtype = at::kFloat;              ///< of the inputs; the layer is float, with doubles double
  bool channels_last = false;
  bool affine = true;
  bool statistics = true;
};

const std::vector<NormCase>& norm_cases() {
  static const std::vector<NormCase> cases = {
      {"rows", {}},
      {"rows of bfloat16", {}, {4, 3, 0}, at::kBFloat16},
      {"sequences of doubles", {7}, {2, 5, 1}, at::kDouble},
      {"pictures", {9, 6}},
      {"pictures, channels-last", {9, 6}, {2, 5, 1}, at::kFloat, true},
      {"none on the first rank", {9, 6}, {0, 5, 4}, at::kFloat, true},
      {"pictures of float16", {9, 6}, {4, 3, 0}, at::kHalf},
      {"pictures of bfloat16, channels-last", {9, 6}, {4, 3, 2}, at::kBFloat16, true},
      {"volumes", {3, 4, 5}, {1, 2, 1}},
      {"without weights", {4, 4}, {3, 2, 1}, at::kFloat, false, false, true},
      {"without statistics", {4, 4}, {3, 2, 1}, at::kHalf, false, true, false}};
  return cases;
}

struct NormResult {
  at::Tensor output;
  at::Tensor gradient;  ///< of the input
  at::Tensor weight;    ///< their gradients
  at::Tensor bias;
  at::Tensor mean;
  at::Tensor variance;
};

at::Tensor exact_on_host(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(at::kCPU).to(at::kDouble) : tensor;
}

torch::nn::BatchNormOptions norm_options(const NormCase& one) {
  return torch::nn::BatchNormOptions(kNormChannels).affine(one.affine).track_running_stats(one.statistics);
}

at::Tensor weights_of_channels() { return at::linspace(0.5, 2, kNormChannels); }
at::Tensor biases_of_channels() { return at::linspace(-1, 1, kNormChannels); }

// The same numbers on all ranks, in all samples of the case.
at::Tensor drawn(const NormCase& one, std::uint64_t seed, int ranks) {
  std::vector<std::int64_t> sizes = {0, kNormChannels};
  for (int rank = 0; rank < ranks; ++rank) sizes[0] += one.samples.at(std::size_t(rank));
  sizes.insert(sizes.end(), one.sizes.begin(), one.sizes.end());
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return (at::randn(sizes, generator) * 3 + 2).to(one.dtype);
}

at::Tensor part_for(const NormCase& one, const at::Tensor& all, int rank, at::Device device) {
  std::int64_t first = 0;
  for (int peer = 0; peer < rank; ++peer) first += one.samples[std::size_t(peer)];
  const at::Tensor part = all.narrow(0, first, one.samples[std::size_t(rank)]).clone().to(device);
  return one.channels_last ? part.contiguous(at::MemoryFormat::ChannelsLast) : part;
}

// In double.
NormResult norm_of_whole(const NormCase& one, const at::Tensor& x, const at::Tensor& dy) {
  const at::Tensor input = x.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
  at::Tensor weight, bias, mean, variance;
  if (one.affine) {
    weight = weights_of_channels().to(at::kDouble).requires_grad_(true);
    bias = biases_of_channels().to(at::kDouble).requires_grad_(true);
  }
  if (one.statistics) {
    mean = at::zeros({kNormChannels}, at::kDouble);
    variance = at::ones({kNormChannels}, at::kDouble);
  }
  const at::Tensor output = at::batch_norm(input, weight, bias, mean, variance, /*training=*/true, 0.1, 1e-5, false);
  output.backward(dy.to(at::kDouble));
  return {output.detach(),
          input.grad(),
          one.affine ? weight.grad() : at::Tensor(),
          one.affine ? bias.grad() : at::Tensor(),
          mean,
          variance};
}

template <class Norm>
NormResult norm_of_part(const NormCase& one, Norm& norm, const at::Tensor& x, const at::Tensor& dy) {
  if (one.affine) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(weights_of_channels());
    norm->bias.copy_(biases_of_channels());
  }
  const at::Tensor input = x.detach().requires_grad_(true);
  const at::Tensor output = norm->forward(input);
  EXPECT_EQ(output.scalar_type(), one.dtype) << one.name;
  EXPECT_EQ(output.device(), x.device()) << one.name;
  if (x.numel() > 0) {
    EXPECT_EQ(output.suggest_memory_format(), x.suggest_memory_format()) << one.name;
  }
  output.backward(dy);
  return {exact_on_host(output),
          exact_on_host(input.grad()),
          one.affine ? exact_on_host(norm->weight.grad()) : at::Tensor(),
          one.affine ? exact_on_host(norm->bias.grad()) : at::Tensor(),
          exact_on_host(norm->running_mean),
          exact_on_host(norm->running_var)};
}

double rounding_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-11 : dtype == at::kFloat ? 1e-5 : dtype == at::kHalf ? 2e-3 : 1e-2;
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, const at::Tensor& all, double rounding,
                 const std::string& what) {
  ASSERT_EQ(found.defined(), wanted.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  if (found.numel() == 0) return;
  EXPECT_LE((found - wanted).abs().max().item<double>(), rounding * all.abs().max().item<double>()) << what;
}

void expect_part_of_whole(comm::Group& group, const NormCase& one, const NormResult& found, const NormResult& whole) {
  const std::string name = std::string(one.name) + ": ";
  const double rounding = rounding_of(one.dtype);
  // CUDA's kernel for inputs of 16 bits that are not channels-last rounds what it adds up to them.
  const bool is_rounded = at::elementSize(one.dtype) == 2 && !one.channels_last && !one.sizes.empty();
  const double of_sums = is_rounded ? rounding : rounding_of(one.dtype == at::kDouble ? at::kDouble : at::kFloat) * 10;
  const auto part = [&](const at::Tensor& all) { return part_for(one, all, group.rank(), at::kCPU); };
  expect_near(found.output, part(whole.output), whole.output, rounding, name + "output");
  expect_near(found.gradient, part(whole.gradient), whole.gradient, rounding, name + "gradient");
  for (const at::Tensor& gradient : {found.weight, found.bias})
    if (gradient.defined()) group.all_reduce(gradient);
  expect_near(found.weight, whole.weight, whole.weight, of_sums, name + "weight");
  expect_near(found.bias, whole.bias, whole.bias, of_sums, name + "bias");
  expect_near(found.mean, whole.mean, whole.mean, of_sums, name + "mean");
  expect_near(found.variance, whole.variance, whole.variance, of_sums, name + "variance");
}

}  // namespace

void expect_norm_of_the_whole_batch(const std::shared_ptr<comm::Group>& group, at::Device device) {
  for (const NormCase& one : norm_cases()) {
    const at::Tensor x = drawn(one, 1, group->size()), dy = drawn(one, 2, group->size());
    const NormResult whole = norm_of_whole(one, x, dy);
    const at::Tensor my_x = part_for(one, x, group->rank(), device), my_dy = part_for(one, dy, group->rank(), device);
    const auto run = [&](auto norm) {
      if (one.dtype == at::kDouble) norm->to(at::kDouble);
      expect_part_of_whole(*group, one, norm_of_part(one, norm, my_x, my_dy), whole);
    };
    SyncBatchNorm layer(norm_options(one), group);
    layer->to(device);
    run(layer);
    const auto converted = [&](auto norm) {
      norm->to(device);
      run(convert_sync_batchnorm(norm, group));
    };
    if (one.sizes.size() == 2)
      converted(torch::nn::BatchNorm2d(norm_options(one)));
    else if (one.sizes.size() < 2)
      converted(torch::nn::BatchNorm1d(norm_options(one)));
    else
      converted(torch::nn::BatchNorm3d(norm_options(one)));
  }
}

void expect_norm_of_few_values(const std::shared_ptr<comm::Group>& group, at::Device device) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(kNormChannels), group);
  norm->to(device);
  const at::Tensor none = at::zeros({0, kNormChannels, 4, 6}, at::TensorOptions(device));
  norm->forward(none.requires_grad_(true)).sum().backward();
  for (const at::Tensor& gradient : {norm->weight.grad(), norm->bias.grad()})
    EXPECT_TRUE(at::equal(gradient.cpu(), at::zeros({kNormChannels})));
  EXPECT_TRUE(at::equal(norm->running_var.cpu(), at::ones({kNormChannels})));
  const std::string error = what_of([&] {
    norm->forward(at::ones({group->rank() == 0 ? 1 : 0, kNormChannels}, at::TensorOptions(device)));
  });
  EXPECT_THAT(error, ::testing::HasSubstr("Expected more than 1 value per channel when training"));
}

}  // namespace lockstep::support
