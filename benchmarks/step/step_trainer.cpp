#include "benchmarks/step/step_trainer.h"

#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <chrono>

#include "lockstep/nn/fuse.h"
#include "lockstep/parallel/sync_batch_norm.h"

namespace lockstep::bench {
namespace {

constexpr int kLabels = 61;  // prime to batches_of(): nothing is learnt by heart, so gradients stay what they are

std::shared_ptr<models::ImageModel> make_model(const Workload& workload, const std::shared_ptr<comm::Group>& group,
                                               Way way) {
  torch::manual_seed(0);
  std::shared_ptr<models::ImageModel> model = workload.model();
  if (way.fuse) nn::fuse(*model);
  return way.sync_bn ? convert_sync_batchnorm(model, group) : model;
}

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepTrainer::StepTrainer(const Workload& workload, const std::shared_ptr<comm::Group>& group, Way way)
    : model_(make_model(workload, group, way)),
      ddp_(model_, group, {.amp = way.amp, .channels_last = way.channels_last, .compression = way.compression}),
      optimizer_(workload.optimizer(ddp_)),
      way_(way) {
  torch::manual_seed(1 + std::uint64_t(group->rank()));
  std::vector<std::int64_t> shape{workload.batch};
  shape.insert(shape.end(), workload.sample.begin(), workload.sample.end());
  for (int i = 0; i < batches_of(workload); ++i) data_.push_back(torch::randn(shape));
  for (int i = 0; i < kLabels; ++i) target_.push_back(torch::randint(workload.classes, {workload.batch}, at::kLong));
}

std::vector<double> StepTrainer::turn(int steps) {
  std::vector<double> times{monotonic_seconds()};
  for (int i = 0; i < steps; ++i) {
    forward_and_backward();
    update();
    times.push_back(monotonic_seconds());
  }
  return times;
}

std::int64_t StepTrainer::weights() const {
  std::int64_t total = 0;
  for (const at::Tensor& parameter : model_->parameters()) total += parameter.numel();
  return total;
}

// A batch of its own for each step, as a loader makes it.
at::Tensor StepTrainer::next_data() {
  const at::Tensor& from = data_[steps_ % data_.size()];
  return from.to(from.options(), false, true,
                 way_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Preserve);
}

void StepTrainer::forward_and_backward() {
  const at::Tensor data = next_data();
  const at::Tensor loss = torch::nn::functional::cross_entropy(ddp_(data), target_[steps_ % target_.size()]);
  ++steps_;
  loss.backward();
}

}  // namespace lockstep::bench
