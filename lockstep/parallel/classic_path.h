#pragma once

// Training with an optimizer that is not ours: gradients are averaged over the ranks during backward, module buffers
// are rank 0's before each forward, as with PyTorch's DistributedDataParallel. No shared state, no transaction.

#include <memory>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/gradient_buckets.h"
#include "lockstep/parallel/module_view.h"

namespace lockstep::parallel {

class ClassicPath {
 public:
  ClassicPath(const ModuleView& module, std::shared_ptr<comm::Group> group, bool find_unused_parameters);

  /// Before each forward in training mode and with gradients.
  void begin_forward();

  /// Collective: module buffers become rank 0's.
  void broadcast_buffers();

  /// While the returned object lives, gradients stay local and add up in .grad().
  [[nodiscard("the gradients stay local only while the returned object lives")]] std::shared_ptr<void> no_sync();

 private:
  NamedTensors module_buffers_;
  std::shared_ptr<comm::Group> group_;
  std::shared_ptr<GradientBuckets> buckets_;  ///< guards of no_sync() may outlive this
};

}  // namespace lockstep::parallel
