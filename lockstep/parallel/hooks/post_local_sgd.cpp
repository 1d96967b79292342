#include "lockstep/parallel/hooks/post_local_sgd.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/hooks/saved_hook.h"

namespace lockstep::parallel {

PostLocalSGDState::PostLocalSGDState(std::shared_ptr<comm::Group> process_group, std::shared_ptr<comm::Group> subgroup,
                                     PostLocalSGDOptions options)
    : group_(std::move(process_group)), subgroup_(std::move(subgroup)), options_(options) {
  if (options_.start_localSGD_iter < 0)
    throw UsageError("post-local SGD: start_localSGD_iter is " + std::to_string(options_.start_localSGD_iter) +
                     "; at least 0");
  if (subgroup_) return;
  if (group_->topology().nodes > 1)
    throw UsageError("post-local SGD: no subgroup was given, and the ranks are on " +
                     std::to_string(group_->topology().nodes) + " nodes; give it the group of this node");
  subgroup_ = group_;
}

std::map<std::string, at::Tensor> PostLocalSGDState::state_dict() const {
  SavedHook saved;
  saved.put("iter", iter_);
  return saved.tensors();
}

void PostLocalSGDState::load_state_dict(const std::map<std::string, at::Tensor>& saved) {
  SavedHook from("post-local SGD", saved);
  std::int64_t iter = 0;
  from.get("iter", iter);
  from.end();
  iter_ = iter;
}

GradFuture post_localSGD_hook(PostLocalSGDState& state, GradBucket& bucket) {
  const bool global = state.iter_ < state.options_.start_localSGD_iter;
  if (global && bucket.is_last()) ++state.iter_;
  if (global || state.options_.post_local_gradient_allreduce)
    (global ? state.group_ : state.subgroup_)->all_reduce(bucket.buffer(), comm::ReduceOp::mean);
  return bucket.buffer();
}

PeriodicModelAverager::PeriodicModelAverager(std::shared_ptr<comm::Group> process_group,
                                             PeriodicModelAveragerOptions options)
    : group_(std::move(process_group)), options_(options) {
  if (options_.period < 1)
    throw UsageError("model averager: period is " + std::to_string(options_.period) + "; at least 1");
  if (options_.warmup_steps < 0)
    throw UsageError("model averager: warmup_steps is " + std::to_string(options_.warmup_steps) + "; at least 0");
}

void PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  const std::int64_t now = step++;
  if (now < options_.warmup_steps || (now - options_.warmup_steps) % options_.period != 0) return;
  for (const at::Tensor& parameter : parameters)
    if (parameter.requires_grad()) group_->all_reduce(parameter, comm::ReduceOp::mean);
}

}  // namespace lockstep::parallel
