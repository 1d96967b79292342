#pragma once

// A module as the engine sees it: its tensors by what happens to them.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"
#include "lockstep/state/layout.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::parallel {

class ModuleView {
 public:
  /// Gives the module, which must outlive this, the memory format of `options`. UsageError when it cannot be shared
  /// (see named_tensors.h), and naming a tensor that is on another device than the others.
  ModuleView(const torch::nn::Module& module, const DataParallelOptions& options);

  /// Where the module is, as a whole.
  at::Device device() const { return device_; }
  const NamedTensors& parameters() const { return parameters_; }
  const NamedTensors& trainable() const { return trainable_; }
  const NamedTensors& frozen() const { return frozen_; }  ///< at construction
  const NamedTensors& buffers() const { return buffers_; }

  /// The trainable parameters for a layout, those with a bfloat16 copy marked. UsageError when one is not float32.
  std::vector<state::TensorSpec> trainable_specs() const;

  /// Collective. Error naming the rank and the tensor or option when ranks hold different modules, train other
  /// parameters of them, or have other `options`.
  void check_equal_on_all(comm::Group& group, const DataParallelOptions& options) const;

  /// Collective: parameters, and where wanted module buffers, become those of rank `root`.
  void broadcast(comm::Collectives& group, int root = 0, bool with_buffers = true) const;

  /// UsageError naming a parameter that the module has got since construction. Cheap where there is none.
  void refuse_new_parameters() const;

  /// No trainable parameter has a .grad any more.
  void drop_gradients() const;

  /// All parameters and buffers by their PyTorch names; `weights`: of the trainable parameters, in their order.
  std::map<std::string, at::Tensor> state_dict(const std::vector<at::Tensor>& weights) const;

 private:
  const torch::nn::Module& module_;
  at::Device device_ = at::kCPU;
  NamedTensors parameters_;
  NamedTensors trainable_;
  NamedTensors frozen_;
  NamedTensors buffers_;
  std::uint64_t print_ = 0;  ///< of all parameters
  std::vector<bool> bf16_;   ///< by trainable parameter: whether forward reads a copy
};

}  // namespace lockstep::parallel
