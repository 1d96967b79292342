#pragma once

// Post-local SGD (Lin et al. 2020): gradients are averaged over all ranks at first, then over a part of them or nobody,
// and weights over all from time to time. As post_localSGD_hook and PeriodicModelAverager of torch.distributed.
//
//   auto state = std::make_shared<lockstep::PostLocalSGDState>(
//       world.group(), nullptr, lockstep::PostLocalSGDOptions{.start_localSGD_iter = 100,
//                                                             .post_local_gradient_allreduce = false});
//   ddp.register_comm_hook(state, lockstep::post_localSGD_hook);
//   lockstep::PeriodicModelAverager averager(world.group(), {.period = 4, .warmup_steps = 100});
//   ...
//   optimizer.step();
//   averager.average_parameters(model->parameters());

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

struct PostLocalSGDOptions {
  /// Backward passes in which gradients are averaged over all ranks.
  std::int64_t start_localSGD_iter = 0;
  /// Afterwards over the subgroup; false: each rank keeps its own.
  bool post_local_gradient_allreduce = true;
};

class PostLocalSGDState {
 public:
  /// `subgroup`: null for the ranks of this node, which on one machine are all.
  /// UsageError without a subgroup where there are several nodes, and for a negative start.
  PostLocalSGDState(std::shared_ptr<comm::Group> process_group, std::shared_ptr<comm::Group> subgroup,
                    PostLocalSGDOptions options);

  const PostLocalSGDOptions& options() const { return options_; }
  /// Backward passes so far, up to the last one that was averaged over all ranks.
  std::int64_t iter() const { return iter_; }

  /// "iter".
  std::map<std::string, at::Tensor> state_dict() const;
  /// UsageError naming what is missing, unknown, or of another dtype.
  void load_state_dict(const std::map<std::string, at::Tensor>& saved);

 private:
  friend GradFuture post_localSGD_hook(PostLocalSGDState& state, GradBucket& bucket);

  std::shared_ptr<comm::Group> group_, subgroup_;
  PostLocalSGDOptions options_;
  std::int64_t iter_ = 0;
};

GradFuture post_localSGD_hook(PostLocalSGDState& state, GradBucket& bucket);

struct PeriodicModelAveragerOptions {
  std::int64_t period = 1;        ///< steps from one averaging to the next: at least 1
  std::int64_t warmup_steps = 0;  ///< without any, when all weights are equal anyway
};

/// Averages weights over the ranks every few steps.
class PeriodicModelAverager {
 public:
  /// UsageError naming the option that is out of range.
  PeriodicModelAverager(std::shared_ptr<comm::Group> process_group, PeriodicModelAveragerOptions options);

  /// Behind each step of the optimizer: collective when it is time. The tensors become their means over the ranks.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  /// Calls so far; may be set, where training goes on from a checkpoint.
  std::int64_t step = 0;

 private:
  std::shared_ptr<comm::Group> group_;
  PeriodicModelAveragerOptions options_;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::PeriodicModelAverager;
using parallel::PeriodicModelAveragerOptions;
using parallel::post_localSGD_hook;
using parallel::PostLocalSGDOptions;
using parallel::PostLocalSGDState;
}  // namespace lockstep
