#include "lockstep/parallel/hooks/post_local_sgd_optimizer.h"

#include <torch/serialize/archive.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr const char* kAveragerStep = "averager_step";

}  // namespace

at::Tensor PostLocalSGDOptimizer::step(torch::optim::Optimizer::LossClosure closure) {
  at::Tensor loss = optim_.step(std::move(closure));
  std::vector<at::Tensor> parameters;
  for (const auto& group : optim_.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  averager_.average_parameters(parameters);
  return loss;
}

void PostLocalSGDOptimizer::save(torch::serialize::OutputArchive& archive) const {
  optim_.save(archive);
  archive.write(kAveragerStep, c10::IValue(averager_.step));
}

void PostLocalSGDOptimizer::load(torch::serialize::InputArchive& archive) {
  c10::IValue step;
  if (!archive.try_read(kAveragerStep, step) || !step.isInt())
    throw UsageError(
        "PostLocalSGDOptimizer: the archive has no averager_step; it is of an optimizer alone, which reads it: "
        "optim().load(archive)");
  optim_.load(archive);
  averager_.step = step.toInt();
}

}  // namespace lockstep::parallel
