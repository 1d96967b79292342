#include "lockstep/checkpoint/torch_optimizer.h"

#include <ATen/ops/full.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "lockstep/amp/fused_optimizers.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep::checkpoint {
namespace {

namespace optimizers = torch::optim;
using ParamState = optimizers::OptimizerParamState;

// Hands each entry of a state to visit(name, tensor) or visit(name, count), by reference.
template <class Visit>
void each(optimizers::SGDParamState& state, Visit visit) {
  visit("momentum_buffer", state.momentum_buffer());
}
template <class State, class Visit>
requires(std::same_as<State, optimizers::AdamParamState> ||
         std::same_as<State, optimizers::AdamWParamState>) void each(State& state, Visit visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Visit>
void each(optimizers::RMSpropParamState& state, Visit visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}
template <class Visit>
void each(optimizers::AdagradParamState& state, Visit visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

// Calls found(name, a null pointer to the type of its states).
template <class Found>
void with_kind(const optimizers::Optimizer& optimizer, Found found) {
  if (dynamic_cast<const optimizers::SGD*>(&optimizer))
    found("torch::optim::SGD", static_cast<optimizers::SGDParamState*>(nullptr));
  else if (dynamic_cast<const optimizers::AdamW*>(&optimizer))
    found("torch::optim::AdamW", static_cast<optimizers::AdamWParamState*>(nullptr));
  else if (dynamic_cast<const optimizers::Adam*>(&optimizer))
    found("torch::optim::Adam", static_cast<optimizers::AdamParamState*>(nullptr));
  else if (dynamic_cast<const optimizers::RMSprop*>(&optimizer))
    found("torch::optim::RMSprop", static_cast<optimizers::RMSpropParamState*>(nullptr));
  else if (dynamic_cast<const optimizers::Adagrad*>(&optimizer))
    found("torch::optim::Adagrad", static_cast<optimizers::AdagradParamState*>(nullptr));
  else
    throw UsageError(
        "checkpoint: of torch::optim only SGD, Adam, AdamW, RMSprop and Adagrad have a state that can be saved");
}

struct Writer {
  TensorMap& tensors;
  std::string prefix;
  void operator()(const char* entry, at::Tensor& tensor) const {
    if (tensor.defined()) tensors.emplace(prefix + entry, tensor);
  }
  void operator()(const char* entry, std::int64_t& count) const {
    tensors.emplace(prefix + entry, at::full({}, count, at::kLong));
  }
};

// Takes what it finds out of `tensors`; an entry that is not there stays undefined.
struct Reader {
  TensorMap& tensors;
  std::string prefix;
  const at::TensorImpl& parameter;
  const std::string& source;

  void operator()(const char* entry, at::Tensor& tensor) const {
    const auto found = tensors.extract(prefix + entry);
    if (!found) return;
    if (found.mapped().sizes() != parameter.sizes() || !at::isFloatingType(found.mapped().scalar_type())) refuse(entry);
    tensor = found.mapped().to(parameter.device());
  }
  void operator()(const char* entry, std::int64_t& count) const {
    const auto found = tensors.extract(prefix + entry);
    if (!found || found.mapped().dim() != 0 || found.mapped().scalar_type() != at::kLong) refuse(entry);
    count = found.mapped().item<std::int64_t>();
  }
  [[noreturn]] void refuse(const char* entry) const {
    throw UsageError(source + ": '" + brief(prefix + entry) +
                     "' is missing, or no such entry of this parameter's state");
  }
};

bool has_any(const TensorMap& tensors, const std::string& prefix) {
  const auto next = tensors.lower_bound(prefix);
  return next != tensors.end() && next->first.starts_with(prefix);
}

}  // namespace

std::string kind_of(const optimizers::Optimizer& optimizer) {
  std::string kind;
  with_kind(optimizer, [&](const char* name, auto*) { kind = name; });
  return kind;
}

TensorMap state_of(const optimizers::Optimizer& optimizer, const std::vector<optim::Parameter>& parameters) {
  amp::settle_steps(optimizer);
  TensorMap tensors;
  with_kind(optimizer, [&]<class State>(const char*, State*) {
    for (const optim::Parameter& parameter : parameters) {
      const auto found = optimizer.state().find(const_cast<void*>(parameter.identity));
      if (found == optimizer.state().end()) continue;
      each(static_cast<State&>(*found->second), Writer{tensors, parameter.name + "/"});
    }
  });
  return tensors;
}

void set_state(optimizers::Optimizer& optimizer, const std::vector<optim::Parameter>& parameters,
               const TensorMap& tensors, const std::string& source) {
  amp::settle_steps(optimizer);
  with_kind(optimizer, [&]<class State>(const char*, State*) {
    TensorMap left = tensors;
    std::vector<std::pair<void*, std::unique_ptr<ParamState>>> states;
    for (const optim::Parameter& parameter : parameters) {
      const std::string prefix = parameter.name + "/";
      if (!has_any(left, prefix)) continue;
      auto state = std::make_unique<State>();
      const auto* const tensor = static_cast<const at::TensorImpl*>(parameter.identity);
      each(*state, Reader{left, prefix, *tensor, source});
      states.emplace_back(const_cast<void*>(parameter.identity), std::move(state));
    }
    if (!left.empty())
      throw UsageError(source + ": '" + brief(left.begin()->first) +
                       "' is of no parameter and entry of this optimizer");
    // Adagrad's are made with it, and it makes none later.
    if constexpr (!std::same_as<State, optimizers::AdagradParamState>) optimizer.state().clear();
    for (auto& [parameter, state] : states) optimizer.state()[parameter] = std::move(state);
  });
}

}  // namespace lockstep::checkpoint
