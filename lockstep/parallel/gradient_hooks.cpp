#include "lockstep/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace lockstep::parallel {
namespace {

// On the AccumulateGrad node itself: the one post-accumulate slot of a tensor belongs to Python.
class Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<GradientHooks::Callback> callback, std::size_t index)
      : callback_(std::move(callback)), index_(index) {}

  bool calls(const std::shared_ptr<GradientHooks::Callback>& callback) const { return callback_ == callback; }

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    if (*callback_) (*callback_)(index_, !inputs.empty() && inputs.front().defined());
    return outputs;
  }

 private:
  std::shared_ptr<GradientHooks::Callback> callback_;
  std::size_t index_;
};

bool is_hooked(const torch::autograd::Node& node, const std::shared_ptr<GradientHooks::Callback>& callback) {
  const auto& hooks = node.post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [&](const auto& one) {
    const auto* ours = dynamic_cast<const Hook*>(one.get());
    return ours != nullptr && ours->calls(callback);
  });
}

}  // namespace

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, Callback callback)
    : parameters_(std::move(parameters)),
      callback_(std::make_shared<Callback>(std::move(callback))),
      accumulators_(parameters_.size()) {
  renew();
}

void GradientHooks::renew() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) hook(i);
}

// A tensor forgets its accumulator when it gets data of another dtype or device, and makes another one in forward.
std::optional<std::size_t> GradientHooks::first_lost() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& ours = accumulators_[i];
    if (ours == nullptr) continue;
    if (torch::autograd::impl::try_get_grad_accumulator(parameters_[i]) != ours) return i;
    if (!ours->input_metadata(0).is_same_shape(parameters_[i])) return i;
  }
  return {};
}

void GradientHooks::hook_unfrozen() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (accumulators_[i] == nullptr) hook(i);
}

void GradientHooks::hook(std::size_t index) {
  accumulators_[index] = nullptr;
  if (!parameters_[index].requires_grad()) return;  // it has no accumulator
  accumulators_[index] = torch::autograd::impl::grad_accumulator(parameters_[index]);
  if (!is_hooked(*accumulators_[index], callback_))
    accumulators_[index]->add_post_hook(std::make_unique<Hook>(callback_, index));
}

GradientHooks::~GradientHooks() { *callback_ = nullptr; }

}  // namespace lockstep::parallel
