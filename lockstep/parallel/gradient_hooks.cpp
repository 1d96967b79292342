#include "lockstep/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::parallel {
namespace {

// On the AccumulateGrad node itself: the one post-accumulate slot of a tensor belongs to Python.
class Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<GradientHooks::Callback> callback, std::size_t index)
      : callback_(std::move(callback)), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (*callback_) (*callback_)(index_);
    return outputs;
  }

 private:
  std::shared_ptr<GradientHooks::Callback> callback_;
  std::size_t index_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, Callback callback)
    : callback_(std::make_shared<Callback>(std::move(callback))) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters[i]));
    accumulators_.back()->add_post_hook(std::make_unique<Hook>(callback_, i));
  }
}

GradientHooks::~GradientHooks() { *callback_ = nullptr; }

}  // namespace lockstep::parallel
