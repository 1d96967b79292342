#pragma once

// Steps of each rank's own, and weights averaged over the ranks from time to time, as
// torch.distributed.optim.PostLocalSGDOptimizer:
//
//   torch::optim::SGD sgd(model->parameters(), 0.1);
//   lockstep::PeriodicModelAverager averager(world.group(), {.period = 4, .warmup_steps = 100});
//   lockstep::PostLocalSGDOptimizer optimizer(sgd, averager);
//
// `warmup_steps` is start_localSGD_iter of the hook's state (post_local_sgd.h).

#include <torch/optim/optimizer.h>

#include <vector>

#include "lockstep/parallel/hooks/post_local_sgd.h"

namespace lockstep::parallel {

/// Around an optimizer of torch::optim, which with the averager outlives it.
class PostLocalSGDOptimizer {
 public:
  PostLocalSGDOptimizer(torch::optim::Optimizer& optim, PeriodicModelAverager& averager)
      : optim_(optim), averager_(averager) {}

  /// A step of the optimizer, then the averager's turn: collective where it is time.
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  void zero_grad(bool set_to_none = true) { optim_.zero_grad(set_to_none); }
  std::vector<torch::optim::OptimizerParamGroup>& param_groups() { return optim_.param_groups(); }
  void add_param_group(const torch::optim::OptimizerParamGroup& group) { optim_.add_param_group(group); }
  torch::optim::Optimizer& optim() { return optim_; }

  /// The optimizer's state and the averager's step, so that training that goes on does not warm up again.
  void save(torch::serialize::OutputArchive& archive) const;
  /// UsageError for an archive without the averager's step: it is of the optimizer alone.
  void load(torch::serialize::InputArchive& archive);

 private:
  torch::optim::Optimizer& optim_;
  PeriodicModelAverager& averager_;
};

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::PostLocalSGDOptimizer;
}  // namespace lockstep
