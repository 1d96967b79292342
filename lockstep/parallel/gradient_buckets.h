#pragma once

// The classic path, for optimizers that are not ours: gradients are averaged over the ranks
// in buckets while backward runs, and are found in .grad() afterwards, as with PyTorch's
// DistributedDataParallel. No shared state, no transaction; a bucket is put together in memory that the
// ranks share, where the all-reduce copies nothing.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/bucket_tuner.h"
#include "lockstep/parallel/gradient_hooks.h"
#include "lockstep/parallel/gradient_use.h"
#include "lockstep/parallel/hooks/grad_bucket.h"
#include "lockstep/parallel/named_tensors.h"
#include "lockstep/parallel/options.h"
#include "lockstep/parallel/step_clock.h"
#include "lockstep/parallel/uneven_inputs.h"

namespace lockstep::parallel {

class GradientBuckets {
 public:
  /// With find_unused_parameters, or static_graph, a parameter without a gradient counts as zeros; where all ranks have
  /// none, it keeps what .grad() it had. Else that is an Error naming it and the rank. `clock` must outlive this.
  GradientBuckets(const NamedTensors& parameters, std::shared_ptr<comm::Group> group,
                  const DataParallelOptions& options, StepClock& clock);

  /// Before each forward with gradients. Forgets a backward that ended by an exception; decides, as PyTorch, whether
  /// the next backward averages: when this forward, or one before it since the last such backward, is enabled.
  /// Error naming a parameter that was converted since construction.
  void begin_forward();

  /// Backward passes that were averaged so far.
  std::uint64_t averaged() const { return averaged_; }
  const BucketTuner& buckets() const { return buckets_; }

  /// From now on buckets are exchanged by `hook`. Collective.
  void set_hook(CommHook hook) { buckets_->set_hook(std::move(hook)); }

  /// While `inputs` is not null, each backward is announced there, and its mean is over those ranks that still have
  /// inputs where that is wanted. `at_the_end`: buckets are sent behind the last gradient, for layers have collectives
  /// in between, of which ranks without inputs do not know where they come.
  void set_inputs(UnevenInputs* inputs, bool at_the_end) {
    inputs_ = inputs;
    at_the_end_ = at_the_end;
  }
  /// The backward of a rank without inputs: zeros to all buckets. Its .grad() stay what they are, or become the means
  /// where there are joinables, which may be optimizers.
  void backward_without_inputs();

  /// While false, gradients of forwards that begin stay local and add up in .grad() (no_sync).
  void set_enabled(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

 private:
  void on_gradient(std::size_t parameter, bool added);
  void begin_backward();
  void finish_backward();
  void add_unused();
  void send();
  void refuse_converted() const;
  [[noreturn]] void refuse(const std::vector<std::string>& parameters, const std::string& why) const;

  NamedTensors parameters_;
  std::shared_ptr<comm::Group> group_;
  StepClock& clock_;
  const bool skip_unused_;
  const bool as_views_;
  GradientUse use_;
  BucketTuner buckets_;
  std::uint64_t averaged_ = 0;
  UnevenInputs* inputs_ = nullptr;  ///< null outside join()
  bool at_the_end_ = false;
  bool in_backward_ = false;
  bool enabled_ = true;
  bool averages_ = true;  ///< in the next backward
  bool begun_ = false;    ///< a forward was, and no averaging backward behind it
  GradientHooks hooks_;   ///< last: silenced before the rest goes
};

}  // namespace lockstep::parallel
