#pragma once

// Training with an optimizer that is not ours: gradients are averaged over the ranks during backward, module buffers
// are rank 0's before each forward, as with PyTorch's DistributedDataParallel. No shared state, no transaction.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/gradient_buckets.h"
#include "lockstep/parallel/module_view.h"
#include "lockstep/parallel/step_clock.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {

class ClassicPath {
 public:
  /// `module` and `clock` must outlive this.
  ClassicPath(const ModuleView& module, std::shared_ptr<comm::Group> group, const DataParallelOptions& options,
              StepClock& clock);

  /// Before each forward through the wrapper, in any mode. As PyTorch: collective where the forward before it was one
  /// with gradients and outside of no_sync(), so the first of an evaluation is, and those behind it are not; module
  /// buffers become rank 0's then. Error of DataParallelOptions::verify_replicas_every, and for converted parameters.
  void begin_forward();

  /// Collective: what the next forward would do, which then is not collective, so that ranks may evaluate as many
  /// batches as they have.
  void begin_evaluation();

  /// While the returned object lives, gradients of forwards that begin stay local and add up in .grad().
  [[nodiscard("the gradients stay local only while the returned object lives")]] std::shared_ptr<void> no_sync();

  /// As Engine's.
  void register_comm_hook(CommHook hook);
  bool has_hook() const { return has_hook_; }
  std::vector<std::size_t> bucket_bytes() const { return buckets_->buckets()->bytes(); }
  const std::vector<BucketTrial>& tried_sizes() const { return buckets_->buckets().tried(); }
  /// `collective_layers`: whether forward and backward of the module have collectives of their own.
  void join(const std::function<void()>& loop, const JoinOptions& options, bool collective_layers);

 private:
  void broadcast_buffers();
  void verify();
  void follow_the_others();

  const ModuleView& module_;
  StepClock& clock_;
  std::shared_ptr<comm::Group> group_;
  const std::uint64_t verify_every_;
  const bool broadcasts_buffers_;
  const bool autotunes_;
  std::uint64_t verified_ = 0;  ///< behind this backward pass
  bool syncs_next_ = true;      ///< whether the next forward is collective
  bool has_hook_ = false;
  std::optional<UnevenInputs> inputs_;        ///< within join()
  std::shared_ptr<GradientBuckets> buckets_;  ///< guards of no_sync() may outlive this
};

}  // namespace lockstep::parallel
