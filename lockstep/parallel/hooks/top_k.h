#pragma once

// Only the largest gradients are exchanged; what is left is added to those of the next step (Stich, Cordonnier, Jaggi
// 2018). PyTorch has no such hook.
//
//   auto state = std::make_shared<lockstep::TopKState>(world.group(), lockstep::TopKOptions{.ratio = 0.01});
//   ddp.register_comm_hook(state, lockstep::topk_hook);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

struct TopKOptions {
  /// Of the elements of a bucket: in (0, 1]. At least one is sent. Each costs an index of 8 bytes besides.
  double ratio = 0.01;
  /// In the first steps gradients are exchanged whole.
  std::int64_t start_iter = 0;
  /// False: what is left is lost.
  bool use_error_feedback = true;
};

/// What is remembered between steps, of one rank.
class TopKState {
 public:
  /// UsageError naming the option that is out of range.
  explicit TopKState(std::shared_ptr<comm::Group> process_group, TopKOptions options = {});

  const TopKOptions& options() const { return options_; }
  /// Backward passes so far.
  std::int64_t iter() const { return iter_; }

  /// "iter" and "error_dict.BUCKET", copies; this rank's own.
  std::map<std::string, at::Tensor> state_dict() const;
  /// UsageError naming what is missing, unknown, or of another dtype.
  void load_state_dict(const std::map<std::string, at::Tensor>& saved);

 private:
  friend GradFuture topk_hook(TopKState& state, GradBucket& bucket);

  std::shared_ptr<comm::Group> group_;
  TopKOptions options_;
  std::int64_t iter_ = 0;
  std::map<std::size_t, at::Tensor> error_;  ///< by bucket
};

/// The mean over the ranks of each rank's largest elements by magnitude; those that a rank does not send count as 0.
GradFuture topk_hook(TopKState& state, GradBucket& bucket);

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::topk_hook;
using parallel::TopKOptions;
using parallel::TopKState;
}  // namespace lockstep
