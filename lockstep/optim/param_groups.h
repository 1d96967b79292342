#pragma once

// Groups of parameters, as PyTorch's: which parameters, and the options that they have for themselves.

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::optim {

/// A parameter that is trained.
struct Parameter {
  std::string name;                ///< PyTorch's
  const void* identity = nullptr;  ///< of the tensor: Tensor::unsafeGetTensorImpl()
};

/// Some of a model's parameters: by tensors, as model->head->parameters() gives them, or by names, in which `*` stands
/// for any characters (and the shell's other wildcards for theirs): "head.*", "*.bias". Converts from each, and from
/// several names. Tensors that want no gradient are left out.
class Params {
 public:
  Params(const char* name) : names_{name} {}
  Params(std::string name) : names_{std::move(name)} {}
  Params(std::vector<std::string> names) : names_(std::move(names)) {}
  Params(std::initializer_list<const char*> names) : names_(names.begin(), names.end()) {}
  template <class Tensor>
  requires requires(const Tensor& tensor) { tensor.unsafeGetTensorImpl(); }
  Params(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors)
      if (tensor.requires_grad()) tensors_.push_back(tensor.unsafeGetTensorImpl());
  }

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<const void*>& tensors() const { return tensors_; }

 private:
  std::vector<std::string> names_;
  std::vector<const void*> tensors_;
};

template <class Options>
struct ParamGroup {
  Params params;
  Options options = {};   ///< those that are not given are the optimizer's
  double initial_lr = 0;  ///< options.lr when the optimizer was made, which sets it; what schedules begin with
};

/// The group of each parameter: the first that has it. UsageError naming the parameter that is in no group, the name or
/// tensor of a group that fits no parameter, and a group that gets none.
std::vector<int> groups_of(const std::vector<Parameter>& parameters, const std::vector<Params>& groups);

/// UsageError: the options of this group need another amount of state than at the start.
[[noreturn]] void refuse_other_state(int group);
/// UsageError: the schedule has a momentum and the optimizer was made without.
[[noreturn]] void refuse_momentum();
/// UsageError: there are more or fewer schedules than groups.
[[noreturn]] void refuse_schedules(std::size_t schedules, std::size_t groups);

}  // namespace lockstep::optim
