#pragma once

// A module as the engine sees it: its tensors by what happens to them.

#include <torch/nn/module.h>

#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"
#include "lockstep/state/layout.h"

namespace lockstep::parallel {

class ModuleView {
 public:
  /// Gives the module the memory format of `options`. UsageError when it cannot be shared (see named_tensors.h).
  ModuleView(const torch::nn::Module& module, const DataParallelOptions& options);

  const NamedTensors& parameters() const { return parameters_; }  ///< all
  const NamedTensors& trainable() const { return trainable_; }
  const NamedTensors& frozen() const { return frozen_; }  ///< at construction
  const NamedTensors& buffers() const { return buffers_; }

  /// The trainable parameters for a layout, those with a bfloat16 copy marked. UsageError when one is not float32.
  std::vector<state::TensorSpec> trainable_specs() const;

  /// Collective. Error naming the rank and the tensor when ranks hold different modules or cut a batch into
  /// another number of shards.
  void check_equal_on_all(comm::Group& group, int shards) const;

  /// Collective: parameters and buffers become rank 0's.
  void broadcast(comm::Group& group) const;

 private:
  NamedTensors parameters_;
  NamedTensors trainable_;
  NamedTensors frozen_;
  NamedTensors buffers_;
  std::vector<bool> bf16_;  ///< by trainable parameter
};

}  // namespace lockstep::parallel
