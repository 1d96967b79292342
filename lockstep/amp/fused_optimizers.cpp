#include "lockstep/amp/fused_optimizers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::amp {
namespace {

using Tensors = std::vector<at::Tensor>;

// Of one call of a kernel, which takes one device and one dtype. `begun`: whether the parameters have a state.
using Batch = std::tuple<std::string, at::ScalarType, bool>;
Batch batch_of(const at::Tensor& parameter, bool begun) {
  return {parameter.device().str(), parameter.scalar_type(), begun};
}

at::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure) {
  if (!closure) return {};
  const at::AutoGradMode gradients(true);
  return closure();
}

// The kernels go through memory from its begin to its end, so strides have to be the parameter's.
at::Tensor as_laid_out(const at::Tensor& tensor, const at::Tensor& parameter) {
  return tensor.strides() == parameter.strides() ? tensor : at::empty_like(parameter).copy_(tensor);
}

// Why the kernels cannot take it; empty: they can. libtorch 2.11's kernel of SGD for 16 bits on the CPU writes no
// weights and reads their momentum as float32.
std::string refusal_of(const at::Tensor& parameter, bool is_sgd) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.layout() != at::kStrided) return "has a gradient that is sparse";
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device())
    return "has a gradient of another dtype or device";
  if (!parameter.is_non_overlapping_and_dense()) return "does not fill its memory";
  if (is_sgd && parameter.is_cpu() && parameter.element_size() == 2) return "is of 16 bits and on the CPU";
  return "";
}

void check(const std::vector<torch::optim::OptimizerParamGroup>& groups, bool is_sgd = false) {
  for (const auto& group : groups)
    for (const at::Tensor& parameter : group.params()) {
      const std::string why = parameter.grad().defined() ? refusal_of(parameter, is_sgd) : "";
      if (why.empty()) continue;
      std::ostringstream sizes;
      sizes << parameter.sizes();
      throw UsageError("fused optimizer: a parameter of sizes " + sizes.str() + " " + why +
                       "; an optimizer of torch::optim takes it");
    }
}

// The state of a parameter, which is made when it is first asked for.
template <class State, class States>
State& state_of(States& states, const at::Tensor& parameter) {
  auto& found = states[parameter.unsafeGetTensorImpl()];
  if (!found) found = std::make_unique<State>();
  return static_cast<State&>(*found);
}

std::optional<at::Tensor> given(const at::Tensor& found_inf) {
  return found_inf.defined() ? std::optional<at::Tensor>(found_inf) : std::nullopt;
}

// Whether a step of SGD would give a parameter its momentum.
template <class States>
bool begins_a_momentum(const std::vector<torch::optim::OptimizerParamGroup>& groups, const States& states) {
  for (const auto& group : groups) {
    if (static_cast<const torch::optim::SGDOptions&>(group.options()).momentum() == 0) continue;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      const auto found = states.find(parameter.unsafeGetTensorImpl());
      if (found == states.end()) return true;
      if (!static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer().defined()) return true;
    }
  }
  return false;
}

template <class State, class States>
void settle(const States& states, detail::StepTensors& counts) {
  for (const auto& entry : states) {
    State& state = static_cast<State&>(*entry.second);
    state.step(counts.made(static_cast<const c10::TensorImpl*>(entry.first), state.step()));
  }
}

struct AdamLists {
  Tensors parameters, gradients, averages, squares, largest, steps;
};

template <class Options, class State, class States, class Kernel>
void adam_step(std::vector<torch::optim::OptimizerParamGroup>& groups, States& states, detail::StepTensors& counts,
               const at::Tensor& found_inf, const Kernel& kernel) {
  for (auto& group : groups) {
    const auto& options = static_cast<const Options&>(group.options());
    std::map<Batch, AdamLists> batches;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      State& state = state_of<State>(states, parameter);
      const auto prepare = [&](const at::Tensor& tensor) {
        return tensor.defined() ? as_laid_out(tensor, parameter) : at::zeros_like(parameter);
      };
      state.exp_avg(prepare(state.exp_avg()));
      state.exp_avg_sq(prepare(state.exp_avg_sq()));
      if (options.amsgrad()) state.max_exp_avg_sq(prepare(state.max_exp_avg_sq()));
      AdamLists& lists = batches[batch_of(parameter, true)];
      lists.parameters.push_back(parameter);
      lists.gradients.push_back(as_laid_out(parameter.grad(), parameter));
      lists.averages.push_back(state.exp_avg());
      lists.squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) lists.largest.push_back(state.max_exp_avg_sq());
      lists.steps.push_back(counts.at(parameter, state.step()));
    }
    for (auto& [batch, lists] : batches) {
      const auto [beta1, beta2] = options.betas();
      for (const at::Tensor& parameter : lists.parameters) counts.begin(parameter);
      if (found_inf.defined())
        at::_foreach_add_(lists.steps, 1 - found_inf);
      else
        at::_foreach_add_(lists.steps, 1);
      kernel(lists.parameters, lists.gradients, lists.averages, lists.squares, lists.largest, lists.steps, options.lr(),
             beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false,
             /*grad_scale=*/std::optional<at::Tensor>(), given(found_inf));
      for (const at::Tensor& parameter : lists.parameters) {
        State& state = state_of<State>(states, parameter);
        state.step(state.step() + 1);
        counts.advanced(parameter, state.step(), found_inf.defined());
      }
    }
  }
}

}  // namespace

void detail::StepTensors::begin(const at::Tensor& parameter) { counts_[parameter.unsafeGetTensorImpl()].steps = -1; }

void detail::StepTensors::advanced(const at::Tensor& parameter, std::int64_t steps, bool perhaps) {
  Count& count = counts_[parameter.unsafeGetTensorImpl()];
  count.steps = steps;
  count.ahead = count.ahead || perhaps;
}

std::int64_t detail::StepTensors::made(const c10::TensorImpl* parameter, std::int64_t steps) {
  const auto found = counts_.find(parameter);
  if (found == counts_.end() || !found->second.ahead || found->second.steps != steps) return steps;
  Count& count = found->second;
  count.ahead = false;
  count.steps = std::int64_t(count.tensor.item<float>());
  return count.steps;
}

at::Tensor detail::StepTensors::at(const at::Tensor& parameter, std::int64_t before) {
  Count& count = counts_[parameter.unsafeGetTensorImpl()];
  if (count.steps != before || !count.tensor.defined())
    count = {at::full({}, before, parameter.options().dtype(at::kFloat)), before};
  else if (count.tensor.device() != parameter.device())
    count.tensor = count.tensor.to(parameter.device());
  return count.tensor;
}

at::Tensor FusedSGD::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss = loss_of(closure);
  check(param_groups_, /*is_sgd=*/true);
  // A momentum begins with the gradient of the first step that is made: the kernel has to know which that is.
  if (found_inf.defined() && begins_a_momentum(param_groups_, state_) && found_inf.item<float>() != 0) return loss;
  struct Lists {
    Tensors parameters, gradients, momenta;
  };
  for (auto& group : param_groups_) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    std::map<Batch, Lists> batches;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      bool begun = true;
      at::Tensor momentum;
      if (options.momentum() != 0) {
        auto& state = state_of<torch::optim::SGDParamState>(state_, parameter);
        begun = state.momentum_buffer().defined();
        momentum = begun ? as_laid_out(state.momentum_buffer(), parameter) : at::empty_like(parameter);
      }
      Lists& lists = batches[batch_of(parameter, begun)];
      lists.parameters.push_back(parameter);
      lists.gradients.push_back(as_laid_out(parameter.grad(), parameter));
      if (momentum.defined()) lists.momenta.push_back(momentum);
    }
    for (auto& [batch, lists] : batches) {
      at::_fused_sgd_(lists.parameters, lists.gradients, lists.momenta, options.weight_decay(), options.momentum(),
                      options.lr(), options.dampening(), options.nesterov(), /*maximize=*/false,
                      /*is_first_step=*/!std::get<bool>(batch), /*grad_scale=*/std::nullopt, given(found_inf));
      // Behind the kernel, which fills those of a first step: what throws before it leaves none.
      for (std::size_t i = 0; i < lists.momenta.size(); ++i)
        state_of<torch::optim::SGDParamState>(state_, lists.parameters[i]).momentum_buffer(lists.momenta[i]);
    }
  }
  return loss;
}

at::Tensor FusedAdam::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss = loss_of(closure);
  check(param_groups_);
  adam_step<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      param_groups_, state_, steps_, found_inf, [](const auto&... all) { at::_fused_adam_(all...); });
  return loss;
}

void FusedAdam::save(torch::serialize::OutputArchive& archive) const {
  settle_steps(*this);
  Adam::save(archive);
}

void FusedAdam::load(torch::serialize::InputArchive& archive) {
  settle_steps(*this);
  Adam::load(archive);
}

at::Tensor FusedAdamW::step(LossClosure closure) {
  const at::NoGradGuard no_grad;
  at::Tensor loss = loss_of(closure);
  check(param_groups_);
  adam_step<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      param_groups_, state_, steps_, found_inf, [](const auto&... all) { at::_fused_adamw_(all...); });
  return loss;
}

void FusedAdamW::save(torch::serialize::OutputArchive& archive) const {
  settle_steps(*this);
  AdamW::save(archive);
}

void FusedAdamW::load(torch::serialize::InputArchive& archive) {
  settle_steps(*this);
  AdamW::load(archive);
}

void settle_steps(const torch::optim::Optimizer& optimizer) {
  if (const auto* const adam = dynamic_cast<const FusedAdam*>(&optimizer))
    settle<torch::optim::AdamParamState>(adam->state(), adam->steps_);
  else if (const auto* const adamw = dynamic_cast<const FusedAdamW*>(&optimizer))
    settle<torch::optim::AdamWParamState>(adamw->state(), adamw->steps_);
}

}  // namespace lockstep::amp
