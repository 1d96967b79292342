// The parts of a batch normalisation over several devices, which libtorch has for GPUs alone: put together from other
// operators, in their own type or, for 16-bit ones, in float.

#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <torch/library.h>

#include "tests/support/device/runtime.h"

namespace lockstep::testing::sim {
namespace {

using Weight = std::optional<at::Tensor>;

at::Tensor exact(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
}

// All dimensions but the channels'.
std::vector<std::int64_t> others(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dimensions.push_back(d);
  }
  return dimensions;
}

// Channels [C] as they meet an input [N, C, ...].
at::Tensor along(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape.at(1) = channels.numel();
  return exact(channels).view(shape);
}

bool given(const Weight& weight) { return weight && weight->defined(); }

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  const at::Tensor x = exact(input);
  return {x.mean(others(x)), at::rsqrt(x.var(others(x), false) + eps)};
}

at::Tensor normalized(const at::Tensor& input, const Weight& weight, const Weight& bias, const at::Tensor& mean,
                      const at::Tensor& invstd, double eps) {
  at::Tensor y = (exact(input) - along(mean, input)) * along(invstd, input);
  if (given(weight)) y = y * along(*weight, input);
  if (given(bias)) y = y + along(*bias, input);
  return y.to(input.scalar_type());
}

// mean, invstd [ranks, C], counts [ranks] of values per channel.
std::tuple<at::Tensor, at::Tensor> gathered(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
                                            const Weight& running_mean, const Weight& running_var, double momentum,
                                            double eps, const at::Tensor& counts) {
  const at::Tensor count = counts.to(mean.scalar_type()).view({-1, 1});
  const at::Tensor all = count.sum();
  const at::Tensor mean_of_all = (mean * count).sum(0) / all;
  const at::Tensor square = ((invstd.pow(-2) - eps + (mean - mean_of_all).pow(2)) * count).sum(0);
  const auto move = [momentum](const Weight& running, const at::Tensor& to) {
    if (given(running)) running->mul_(1 - momentum).add_(to, momentum);
  };
  move(running_mean, mean_of_all);
  move(running_var, square / (all - 1));
  return {mean_of_all, at::rsqrt(square / all + eps)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_sums(const at::Tensor& gradient,
                                                                         const at::Tensor& input,
                                                                         const at::Tensor& mean,
                                                                         const at::Tensor& invstd, const Weight& weight,
                                                                         bool input_g, bool weight_g, bool bias_g) {
  const at::Tensor dy = exact(gradient);
  const at::Tensor sum = dy.sum(others(input));
  const at::Tensor sum_around = (dy * (exact(input) - along(mean, input))).sum(others(input));
  const auto as_weight = [&](const at::Tensor& g) { return given(weight) ? g.to(weight->scalar_type()) : g; };
  return {input_g ? sum : at::Tensor(), input_g ? sum_around : at::Tensor(),
          weight_g ? as_weight(sum_around * exact(invstd)) : at::Tensor(),
          bias_g ? as_weight(sum.clone()) : at::Tensor()};
}

at::Tensor backward(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& mean,
                    const at::Tensor& invstd, const Weight& weight, const at::Tensor& sum, const at::Tensor& sum_around,
                    const at::Tensor& count) {
  const at::Tensor all = count.sum().to(sum.scalar_type());
  const at::Tensor scale = given(weight) ? exact(invstd) * exact(*weight) : exact(invstd);
  const at::Tensor dx = exact(gradient) - along(sum / all, input) -
                        (exact(input) - along(mean, input)) * along(sum_around / all * exact(invstd).pow(2), input);
  return (dx * along(scale, input)).to(input.scalar_type());
}

}  // namespace

void register_batch_norm() {
  static auto* const own =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  own->impl("batch_norm_stats", TORCH_FN(stats));
  own->impl("batch_norm_elemt", TORCH_FN(normalized));
  own->impl("batch_norm_gather_stats_with_counts", TORCH_FN(gathered));
  own->impl("batch_norm_backward_reduce", TORCH_FN(backward_sums));
  own->impl("batch_norm_backward_elemt", TORCH_FN(backward));
}

}  // namespace lockstep::testing::sim
