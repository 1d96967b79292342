#include "lockstep/parallel/slot_linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

namespace lockstep::parallel {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local std::shared_ptr<SlotLinear> slots_of_forward;

// output = input @ weight^T (+ bias), two-dimensional. The products and their operands are those of AddmmBackward.
class LinearBackward final : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& input, const at::Tensor& weight, std::weak_ptr<SlotLinear> slots, std::size_t index)
      : input_(input, false), weight_(weight, false), slots_(std::move(slots)), index_(index) {}

  std::string name() const override { return "LockstepLinearBackward"; }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    const at::Tensor& gradient = gradients[0];
    variable_list results(3);
    if (!gradient.defined()) return results;
    if (task_should_compute_output(0)) results[0] = gradient.mm(weight_.unpack());
    if (task_should_compute_output(1)) results[1] = weight_gradient(gradient);
    if (task_should_compute_output(2)) results[2] = gradient;  // the engine sums it to the bias's shape
    return results;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    input_.reset_data();
    weight_.reset_data();
  }

 private:
  // Undefined when it is in its slot: then AccumulateGrad has nothing to do.
  at::Tensor weight_gradient(const at::Tensor& gradient) {
    const at::Tensor input = input_.unpack();
    const std::shared_ptr<SlotLinear> slots = slots_.lock();
    const bool direct = slots && !at::GradMode::is_enabled();  // enabled: somebody wants to differentiate again
    const at::Tensor* slot = direct ? slots->take(index_) : nullptr;
    if (slot == nullptr) return gradient.t().mm(input);
    at::Tensor out = *slot;
    at::mm_out(out, gradient.t(), input);
    return {};
  }

  SavedVariable input_;
  SavedVariable weight_;
  std::weak_ptr<SlotLinear> slots_;
  std::size_t index_;
};

bool fits(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return at::GradMode::is_enabled() && weight.requires_grad() && input.dim() == 2 && input.is_contiguous() &&
         input.stride(0) != 1 && weight.dim() == 2 && weight.is_contiguous() &&
         input.scalar_type() == weight.scalar_type() && (!bias.defined() || bias.dim() == 1) &&
         torch::autograd::impl::hooks(weight).empty();
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias_or_none) {
  const at::Tensor bias = bias_or_none.value_or(at::Tensor());
  const auto index = slots_of_forward && fits(input, weight, bias) ? slots_of_forward->find(weight) : std::nullopt;
  if (!index) return at::native::linear(input, weight, bias_or_none);
  std::shared_ptr<LinearBackward> node(new LinearBackward(input, weight, slots_of_forward, *index),
                                       torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  at::Tensor output = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return bias.defined() ? at::addmm(bias, input, weight.t()) : at::mm(input, weight.t());
  }();
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace

// `linear` is made of other operators, and autograd sees those. With a kernel of its own for autograd it is seen whole.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { library.impl("linear", linear); }

SlotLinear::SlotLinear(const std::vector<at::Tensor>& parameters, Take take) : take_(std::move(take)) {
  for (std::size_t i = 0; i < parameters.size(); ++i) index_.emplace(parameters[i].unsafeGetTensorImpl(), i);
}

std::optional<std::size_t> SlotLinear::find(const at::Tensor& weight) const {
  const auto found = index_.find(weight.unsafeGetTensorImpl());
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

SlotLinear::Scope::Scope(std::shared_ptr<SlotLinear> slots)
    : before_(std::exchange(slots_of_forward, std::move(slots))) {}

SlotLinear::Scope::~Scope() { slots_of_forward = std::move(before_); }

}  // namespace lockstep::parallel
