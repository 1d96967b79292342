#include "lockstep/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace lockstep::parallel {

// On the AccumulateGrad node itself: the one post-accumulate slot of a tensor belongs to Python.
class GradientHooks::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<Calls> calls, std::size_t index) : calls_(std::move(calls)), index_(index) {}

  bool calls(const std::shared_ptr<Calls>& calls) const { return calls_ == calls; }
  bool is_silent() const { return !calls_->callback; }
  bool has_place() const { return bool(calls_->place); }
  at::Tensor place(at::ScalarType dtype) const { return calls_->place(index_, dtype); }

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    if (!is_silent()) calls_->callback(index_, !inputs.empty() && inputs.front().defined());
    return outputs;
  }

  static bool is_on(const torch::autograd::Node& node, const std::shared_ptr<Calls>& calls) {
    const auto& hooks = node.post_hooks();
    return std::any_of(hooks.begin(), hooks.end(), [&](const auto& one) {
      const auto* ours = dynamic_cast<const Hook*>(one.get());
      return ours != nullptr && ours->calls(calls);
    });
  }

  // The only one that sees what this accumulator gets. Null: there is none, or there are others, too.
  static const Hook* only_one_on(torch::autograd::Node& node) {
    if (!node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr)
      return nullptr;
    const Hook* found = nullptr;
    for (const auto& one : node.post_hooks()) {
      const auto* ours = dynamic_cast<const Hook*>(one.get());
      if (ours != nullptr && ours->is_silent()) continue;
      if (ours == nullptr || found != nullptr) return nullptr;
      found = ours;
    }
    return found;
  }

 private:
  std::shared_ptr<Calls> calls_;
  std::size_t index_;
};

namespace {

// Whether this pass brings the accumulator what is sent to it. torch::autograd::grad() takes it on the way.
bool is_reached(torch::autograd::Node& accumulator) {
  const auto* const wanted = torch::autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr || wanted->empty()) return true;  // all of the graph
  const auto found = wanted->find(&accumulator);
  return found != wanted->end() && found->second.needed_ && found->second.captures_ == nullptr;
}

}  // namespace

GradientHooks::GradientHooks(std::vector<at::Tensor> parameters, Callback callback, Place place)
    : parameters_(std::move(parameters)),
      calls_(std::make_shared<Calls>(Calls{std::move(callback), std::move(place)})),
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
  if (!Hook::is_on(*accumulators_[index], calls_))
    accumulators_[index]->add_post_hook(std::make_unique<Hook>(calls_, index));
}

GradientHooks::~GradientHooks() { *calls_ = {}; }

bool GradientHooks::has_place(const at::Tensor& parameter) {
  const std::shared_ptr<torch::autograd::Node> accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (accumulator == nullptr) return false;
  const Hook* const hook = Hook::only_one_on(*accumulator);
  return hook != nullptr && hook->has_place();
}

at::Tensor GradientHooks::take_place(const torch::autograd::Node& node, std::size_t output, at::ScalarType dtype) {
  auto* const accumulator = dynamic_cast<torch::autograd::AccumulateGrad*>(node.next_edge(output).function.get());
  if (accumulator == nullptr || !is_reached(*accumulator)) return {};
  const Hook* const hook = Hook::only_one_on(*accumulator);
  return hook != nullptr && hook->has_place() ? hook->place(dtype) : at::Tensor();
}

}  // namespace lockstep::parallel
