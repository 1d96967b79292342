#include "lockstep/parallel/normalize_over_ranks.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"
#include "lockstep/parallel/channel_sums.h"
#include "lockstep/parallel/differentiable_once.h"
#include "lockstep/parallel/normalize_on_device.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Those without inputs have to be told before each collective.
void tell(const comm::Group& group, UnevenInputs::Pass pass, std::int64_t channels) {
  if (UnevenInputs* const inputs = UnevenInputs::of(group)) inputs->announce(pass, channels);
}

// What backward needs besides tensors.
struct RanksTogether : torch::CustomClassHolder {
  RanksTogether(std::shared_ptr<comm::Group> the_group, double all_values, double the_eps)
      : group(std::move(the_group)), count(all_values), eps(the_eps) {}
  std::shared_ptr<comm::Group> group;
  double count;  ///< values per channel on all ranks
  double eps;
};

bool is_16_bit(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

at::Tensor in_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

// As BatchNorm's evaluation mode does it: that kernel is given the statistics.
at::Tensor normalized(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                      const ChannelMoments& all, double eps) {
  if (input.numel() == 0) return at::empty_like(input);
  const at::ScalarType dtype = is_16_bit(input) ? at::kFloat : input.scalar_type();
  const at::Tensor variance = all.squares_around / double(all.count);
  return std::get<0>(at::native_batch_norm(input, in_dtype(weight, dtype), in_dtype(bias, dtype), all.mean.to(dtype),
                                           variance.to(dtype), /*training=*/false, /*momentum=*/0, eps));
}

class NormalizeFunction : public torch::autograd::Function<NormalizeFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const ChannelMoments& all,
                            const c10::intrusive_ptr<RanksTogether>& together) {
    const at::Tensor scale = weight.value_or(at::Tensor());
    const at::Tensor shift = bias.value_or(at::Tensor());
    context->save_for_backward({input, scale, all.mean, all.squares_around});
    context->saved_data["together"] = c10::IValue::make_capsule(together);
    context->saved_data["bias"] = c10::IValue(shift.defined());
    return normalized(input, scale, shift, all, together->eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto together =
        c10::static_intrusive_pointer_cast<RanksTogether>(context->saved_data["together"].toCapsule());
    variable_list found(5);  // as many as forward has arguments
    {
      const at::NoGradGuard no_grad;
      const at::Tensor& input = saved[0];
      const at::Tensor& weight = saved[1];
      const at::Tensor& mean = saved[2];
      const at::Tensor gradient = gradients[0].contiguous(input.suggest_memory_format());
      // Of no values at all the gradients are zeros, as BatchNorm's are.
      const at::Tensor inverse =
          together->count > 0 ? (saved[3] / together->count + together->eps).rsqrt() : at::zeros_like(saved[3]);
      const at::Tensor sums = gradient_sums(gradient, input, mean);
      // Autograd gives them the parameters' dtype.
      if (weight.defined()) found[1] = sums[1] * inverse;
      if (context->saved_data["bias"].toBool()) found[2] = sums[0].clone();
      if (context->needs_input_grad(0)) {
        tell(*together->group, UnevenInputs::Pass::statistics_gradient, input.size(1));
        together->group->all_reduce(sums);
        const at::Tensor scale = weight.defined() ? inverse * weight.to(at::kDouble) : inverse;
        found[0] = input_gradient(
            gradient, input, mean,
            {sums[0] / together->count, sums[1] * inverse.square() / together->count, scale.contiguous()});
      }
    }
    return differentiable_once(std::move(found), {gradients[0], saved[0], saved[1]},
                               "SyncBatchNorm: its gradient cannot be differentiated again");
  }
};

void check_input(const at::Tensor& input, std::int64_t channels, const BatchNormState& state, int rank) {
  const std::string who = "SyncBatchNorm: rank " + std::to_string(rank) + " has a batch of ";
  if (!input.defined() || input.layout() != at::kStrided ||
      !(input.device().is_cpu() || at::accelerator::isAccelerator(input.device().type())))
    throw UsageError(who + "no dense tensor on the CPU or on a device that computes");
  for (const at::Tensor& tensor : {state.weight, state.bias, state.running_mean, state.running_var})
    if (tensor.defined() && tensor.device() != input.device())
      throw UsageError(who + "a tensor on " + input.device().str() + ", the layer is on " + tensor.device().str());
  if (input.dim() < 2)
    throw UsageError(who + std::to_string(input.dim()) +
                     " dimensions, must have at least 2: samples, channels and possibly more");
  if (input.size(1) != channels)
    throw UsageError(who + std::to_string(input.size(1)) + " channels, the layer has " + std::to_string(channels));
  if (!is_16_bit(input) && input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble)
    throw UsageError(who + c10::toString(input.scalar_type()) + ", must be Float, Double, BFloat16 or Half");
}

// As BatchNorm: the running variance is that of a sample, with one value less in its denominator.
void update_running(const BatchNormState& state, const ChannelMoments& all) {
  const auto move = [&](const at::Tensor& running, const at::Tensor& to) {
    if (running.defined()) running.copy_(running.to(at::kDouble) * (1 - state.momentum) + to * state.momentum);
  };
  move(state.running_mean, all.mean);
  move(state.running_var, all.squares_around / double(all.count - 1));
}

}  // namespace

at::Tensor normalize_over_ranks(const std::shared_ptr<comm::Group>& group, std::int64_t channels,
                                const at::Tensor& input, const BatchNormState& state) {
  comm::or_abort(*group, [&] { check_input(input, channels, state, group->rank()); });
  if (!input.device().is_cpu()) return normalize_on_device(group, input, state);
  const at::Tensor dense = dense_by_channel(input);
  ChannelMoments all;
  {
    const at::NoGradGuard no_grad;
    tell(*group, UnevenInputs::Pass::statistics, channels);
    all = joined(group->all_gather(packed(channel_moments(dense))));
    TORCH_CHECK_VALUE(all.count != 1, "Expected more than 1 value per channel when training, got input size ",
                      input.sizes(), " and no value on the other ranks");
    if (all.count > 0) update_running(state, all);
  }
  if (!at::GradMode::is_enabled()) return normalized(dense, state.weight, state.bias, all, state.eps);
  const auto given = [](const at::Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
  return NormalizeFunction::apply(dense, given(state.weight), given(state.bias), all,
                                  c10::make_intrusive<RanksTogether>(group, double(all.count), state.eps));
}

void normalize_without_inputs(comm::Group& group, std::int64_t channels) {
  const at::Tensor zeros = at::zeros({channels}, at::kDouble);
  (void)group.all_gather(packed({0, zeros, zeros}));
}

void normalize_backward_without_inputs(comm::Group& group, std::int64_t channels) {
  group.all_reduce(at::zeros({2, channels}, at::kDouble));
}

}  // namespace lockstep::parallel
