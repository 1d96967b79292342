#include "lockstep/parallel/normalize_on_device.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/parallel/channel_sums.h"
#include "lockstep/parallel/differentiable_once.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {
namespace {

// How many values a rank without any says it has: the operator divides by the count of those ranks that it has seen,
// which must not be 0. It is lost in every sum with another rank's, and rounded to the integers it is 0.
constexpr double kNextToNone = 1e-30;

struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(std::shared_ptr<comm::Group> the_group) : group(std::move(the_group)) {}
  std::shared_ptr<comm::Group> group;
};

// Of all ranks' batches, by channel.
struct JoinedMoments {
  at::Tensor mean;
  at::Tensor inverse;  ///< of the standard deviation
  at::Tensor counts;   ///< values per channel, by rank
};

DeviceNorm norm_of(const at::Tensor& input) { return {input.size(1), input.scalar_type() == at::kDouble}; }

at::TensorOptions options_of(const DeviceNorm& norm, at::Device device) {
  return at::TensorOptions(norm.is_double ? at::kDouble : at::kFloat).device(device);
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

at::Tensor as_type_of(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.defined() ? tensor.to(other.scalar_type()) : tensor;
}

// Those without inputs have to be told before each collective.
void tell_ranks(const comm::Group& group, UnevenInputs::Pass pass, const at::Tensor& input) {
  if (UnevenInputs* const inputs = UnevenInputs::of(group)) inputs->announce(pass, norm_of(input).number());
}

// What a rank tells the others: means, inverse deviations, and how many values there are.
at::Tensor told_of_none(const DeviceNorm& norm, at::Device device) {
  const at::Tensor told = at::ones({2 * norm.channels + 1}, options_of(norm, device));
  told.narrow(0, 0, norm.channels).zero_();
  told.narrow(0, 2 * norm.channels, 1).fill_(kNextToNone);
  return told;
}

at::Tensor told_of(const at::Tensor& input, double eps) {
  if (input.numel() == 0) return told_of_none(norm_of(input), input.device());
  const auto [mean, inverse] = at::batch_norm_stats(input, eps);
  return at::cat({mean, inverse, at::full({1}, double(input.numel() / input.size(1)), mean.options())});
}

at::Tensor told_by_all(comm::Group& group, const at::Tensor& told) {
  const at::Tensor all = at::empty({std::int64_t(group.size()), told.numel()}, told.options());
  group.all_gather_into_tensor(all, told);
  return all;
}

// Whether any rank has values. Who has two per channel knows it; fewer than two on all ranks together are few enough
// that all of them ask.
bool is_any(const at::Tensor& input, const at::Tensor& counts) {
  if (input.numel() > input.size(1)) return true;
  const auto values = std::llround(counts.sum(at::kDouble).item<double>());
  TORCH_CHECK_VALUE(values != 1, "Expected more than 1 value per channel when training, got input size ", input.sizes(),
                    " and no value more on the other ranks");
  return values > 0;
}

// The operator moves the running averages along. It wants them in the statistics' type.
JoinedMoments joined_moments(comm::Group& group, const at::Tensor& input, const BatchNormState& state) {
  const at::Tensor told = told_of(input, state.eps);
  const at::Tensor all = told_by_all(group, told);
  const std::int64_t channels = input.size(1);
  const at::Tensor means = all.narrow(1, 0, channels), inverses = all.narrow(1, channels, channels);
  const at::Tensor counts = all.select(1, 2 * channels);
  if (!is_any(input, counts))
    return {told.narrow(0, 0, channels), told.narrow(0, channels, channels), counts.to(at::kInt).contiguous()};
  const at::Tensor mean_so_far = as_type_of(state.running_mean, told);
  const at::Tensor var_so_far = as_type_of(state.running_var, told);
  // Without running averages the operator takes its first argument's type for that of the counts.
  auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(mean_so_far.defined() ? input : means, means, inverses,
                                                                 if_defined(mean_so_far), if_defined(var_so_far),
                                                                 state.momentum, state.eps, counts);
  if (mean_so_far.defined() && !mean_so_far.is_same(state.running_mean)) state.running_mean.copy_(mean_so_far);
  if (var_so_far.defined() && !var_so_far.is_same(state.running_var)) state.running_var.copy_(var_so_far);
  return {std::move(mean), std::move(inverse), counts.to(at::kInt).contiguous()};
}

at::Tensor normalized_on_device(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                const JoinedMoments& all, double eps) {
  if (input.numel() == 0) return at::empty_like(input);
  return at::batch_norm_elemt(input, if_defined(as_type_of(weight, all.mean)), if_defined(as_type_of(bias, all.mean)),
                              all.mean, all.inverse, eps);
}

// This rank's sums of the gradient, of it times the distance from the mean, and the weight's gradient, if there is one.
std::tuple<at::Tensor, at::Tensor, at::Tensor> sums_of(const at::Tensor& gradient, const at::Tensor& input,
                                                       const at::Tensor& mean, const at::Tensor& inverse,
                                                       const at::Tensor& weight) {
  if (input.numel() == 0) return {at::zeros_like(mean), at::zeros_like(mean), at::zeros_like(mean)};
  auto [sum, sum_around, of_weight, of_bias] =
      at::batch_norm_backward_reduce(gradient, input, mean, inverse, if_defined(weight), /*input_g=*/true,
                                     /*weight_g=*/weight.defined(), /*bias_g=*/false);
  return {std::move(sum), std::move(sum_around), std::move(of_weight)};
}

class NormalizeOnDeviceFunction : public torch::autograd::Function<NormalizeOnDeviceFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            const JoinedMoments& all, double eps, const c10::intrusive_ptr<HeldGroup>& held) {
    const at::Tensor scale = weight.value_or(at::Tensor());
    const at::Tensor shift = bias.value_or(at::Tensor());
    context->save_for_backward({input, scale, all.mean, all.inverse, all.counts});
    context->saved_data["group"] = c10::IValue::make_capsule(held);
    context->saved_data["bias"] = c10::IValue(shift.defined());
    return normalized_on_device(input, scale, shift, all, eps);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto held = c10::static_intrusive_pointer_cast<HeldGroup>(context->saved_data["group"].toCapsule());
    torch::autograd::variable_list found(6);  // as many as forward has arguments
    {
      const at::NoGradGuard no_grad;
      const at::Tensor& input = saved[0];
      const at::Tensor& mean = saved[2];
      const at::Tensor& inverse = saved[3];
      const at::Tensor weight = as_type_of(saved[1], mean);
      const at::Tensor gradient = gradients[0].contiguous(input.suggest_memory_format());
      const auto [sum, sum_around, of_weight] = sums_of(gradient, input, mean, inverse, weight);
      // Autograd gives them the parameters' dtype.
      if (weight.defined()) found[1] = of_weight;
      if (context->saved_data["bias"].toBool()) found[2] = sum;
      if (context->needs_input_grad(0)) {
        tell_ranks(*held->group, UnevenInputs::Pass::device_statistics_gradient, input);
        const at::Tensor sums = at::cat({sum, sum_around});
        held->group->all_reduce(sums);
        const std::int64_t channels = input.size(1);
        found[0] = input.numel() == 0 ? at::zeros_like(input)
                                      : at::batch_norm_backward_elemt(gradient, input, mean, inverse,
                                                                      if_defined(weight), sums.narrow(0, 0, channels),
                                                                      sums.narrow(0, channels, channels), saved[4]);
      }
    }
    return differentiable_once(std::move(found), {gradients[0], saved[0], saved[1]},
                               "SyncBatchNorm: its gradient cannot be differentiated again");
  }
};

}  // namespace

at::Tensor normalize_on_device(const std::shared_ptr<comm::Group>& group, const at::Tensor& input,
                               const BatchNormState& state) {
  const at::Tensor dense = dense_by_channel(input);
  JoinedMoments all;
  {
    const at::NoGradGuard no_grad;
    tell_ranks(*group, UnevenInputs::Pass::device_statistics, dense);
    all = joined_moments(*group, dense, state);
  }
  if (!at::GradMode::is_enabled()) return normalized_on_device(dense, state.weight, state.bias, all, state.eps);
  return NormalizeOnDeviceFunction::apply(dense, if_defined(state.weight), if_defined(state.bias), all, state.eps,
                                          c10::make_intrusive<HeldGroup>(group));
}

void normalize_without_inputs(comm::Group& group, const DeviceNorm& norm, at::Device device) {
  (void)told_by_all(group, told_of_none(norm, device));
}

void normalize_backward_without_inputs(comm::Group& group, const DeviceNorm& norm, at::Device device) {
  group.all_reduce(at::zeros({2 * norm.channels}, options_of(norm, device)));
}

}  // namespace lockstep::parallel
