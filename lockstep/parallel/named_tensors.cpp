#include "lockstep/parallel/named_tensors.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

// A module's own parameters as they lie there: the public functions make a new dictionary.
struct OwnParameters : torch::nn::Module {
  static torch::OrderedDict<std::string, at::Tensor> torch::nn::Module::*pointer() {
    return &OwnParameters::parameters_;
  }
};

// Its own modules: Module::apply() and Module::named_modules() make the full name of each, Module::children() a list.
// An explicit instantiation may name what is private.
using OwnModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;
OwnModules torch::nn::Module::*own_modules();
template <OwnModules torch::nn::Module::*member>
struct OwnModulesAre {
  friend OwnModules torch::nn::Module::*own_modules() { return member; }
};
template struct OwnModulesAre<&torch::nn::Module::children_>;

std::uint64_t add_parameters(std::uint64_t print, const torch::nn::Module& module) {
  for (const auto& item : module.*OwnParameters::pointer())
    print = (print ^ reinterpret_cast<std::uintptr_t>(item.value().unsafeGetTensorImpl())) * 0x9E3779B97F4A7C15u;
  for (const auto& item : module.*own_modules()) print = add_parameters(print, *item.value());
  return print;
}

// On a GPU cuDNN's weights of a recurrent layer lie in one storage, each in its own part.
const void* memory_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.storage().data() : tensor.const_data_ptr();
}

}  // namespace

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

NamedTensors parameters_of(const torch::nn::Module& module) {
  NamedTensors named;
  std::set<const at::TensorImpl*> seen;
  std::map<const void*, std::string> owners;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (tensor.numel() > 0) {
      const auto [owner, fresh] = owners.emplace(memory_of(tensor), item.key());
      if (!fresh)
        throw UsageError("parameters '" + owner->second + "' and '" + item.key() +
                         "' share memory but are different tensors; register one tensor under both names instead");
    }
    named.emplace_back(item.key(), tensor);
  }
  return named;
}

std::uint64_t print_of_parameters(const torch::nn::Module& module) { return add_parameters(0, module); }

NamedTensors buffers_of(const torch::nn::Module& module) {
  NamedTensors named;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_buffers()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (!tensor.is_contiguous()) throw UsageError("buffer '" + item.key() + "' is not contiguous");
    named.emplace_back(item.key(), tensor);
  }
  return named;
}

NamedTensors trainable(const NamedTensors& parameters) {
  NamedTensors named;
  for (const auto& parameter : parameters)
    if (parameter.second.requires_grad()) named.push_back(parameter);
  return named;
}

NamedTensors frozen(const NamedTensors& parameters) {
  NamedTensors named;
  for (const auto& parameter : parameters)
    if (!parameter.second.requires_grad()) named.push_back(parameter);
  return named;
}

std::string text_of_parameters(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text = names.size() == 1 ? "parameter" : "parameters";
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) text += (i == 0 ? " '" : ", '") + names[i] + "'";
  return names.size() <= kMost ? text : text + " (and " + std::to_string(names.size() - kMost) + " more)";
}

void refuse_unfit_modules(const torch::nn::Module& module) {
  const auto look = [](const std::string& name, const auto* table, const std::string& kind) {
    if (table == nullptr) return;
    const std::string which = (name.empty() ? "the model: " : "module '" + name + "': ") + kind;
    if (table->options.max_norm())
      throw UsageError(
          which + " with max_norm edits its weights during forward, which weights shared by all ranks do not allow");
    if (table->options.sparse())
      throw UsageError(which + " with sparse=true gives sparse gradients, and dense ones are averaged; leave it out");
  };
  for (const auto& item : module.named_modules()) {
    const torch::nn::Module* child = item.value().get();
    look(item.key(), dynamic_cast<const torch::nn::EmbeddingImpl*>(child), "Embedding");
    look(item.key(), dynamic_cast<const torch::nn::EmbeddingBagImpl*>(child), "EmbeddingBag");
  }
}

}  // namespace lockstep::parallel
