#include "lockstep/horovod/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::horovod {
namespace {

// What goes as one operation: enough that its fixed costs do not matter, little enough to stay near the caches.
constexpr std::int64_t kFusedBytes = std::int64_t(4) << 20;

void check_passes(int passes) {
  if (passes < 1)
    throw UsageError("DistributedOptimizer: backward_passes_per_step is " + std::to_string(passes) +
                     "; needs 1 or more");
}

}  // namespace

struct DistributedOptimizer::Passes {
  int allowed = 1;
  std::vector<std::string> names;
  std::vector<int> done;

  bool any() const {
    return std::any_of(done.begin(), done.end(), [](int passes) { return passes > 0; });
  }
  void count(std::size_t parameter) {
    if (done[parameter] == allowed)
      throw UsageError("DistributedOptimizer: rank " + std::to_string(rank()) + " computes the gradient of " +
                       names[parameter] + " more than backward_passes_per_step (" + std::to_string(allowed) +
                       ") times before step(); a larger number adds gradients up");
    ++done[parameter];
  }
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer, DistributedOptimizerOptions options)
    : optimizer_(optimizer), options_(std::move(options)), passes_(std::make_shared<Passes>()) {
  check_passes(options_.backward_passes_per_step);
  if (options_.op != Op::Average && options_.op != Op::Sum && options_.op != Op::Adasum)
    throw UsageError("DistributedOptimizer: op is Average, Sum or Adasum");
  if (options_.op != Op::Average && options_.gradient_predivide_factor != 1)
    throw UsageError("DistributedOptimizer: gradient_predivide_factor needs op Average");
  if (!(options_.gradient_predivide_factor > 0))
    throw UsageError("DistributedOptimizer: gradient_predivide_factor is " +
                     std::to_string(options_.gradient_predivide_factor) + "; needs more than 0");
  (void)options_.process_set.size();  // init() has been called
  passes_->allowed = options_.backward_passes_per_step;
  for (const torch::optim::OptimizerParamGroup& group : optimizer_.param_groups())
    for (const at::Tensor& parameter : group.params())
      if (parameter.requires_grad()) parameters_.push_back(parameter);
  name_parameters();
  count_passes();
}

void DistributedOptimizer::name_parameters() {
  const auto& named = options_.named_parameters;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    std::string name = named.is_empty() ? "parameter " + std::to_string(i) : "";
    for (const auto& item : named)
      if (item.value().is_same(parameters_[i])) name = item.key();
    if (name.empty())
      throw UsageError("DistributedOptimizer: named_parameters lacks parameter " + std::to_string(i) +
                       " of the optimizer; all or none have names");
    passes_->names.push_back(std::move(name));
  }
  passes_->done.assign(parameters_.size(), 0);
}

void DistributedOptimizer::count_passes() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    hooks_.push_back(parameters_[i].register_hook([passes = passes_, i](const at::Tensor&) { passes->count(i); }));
}

DistributedOptimizer::~DistributedOptimizer() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) parameters_[i].remove_hook(hooks_[i]);
}

void DistributedOptimizer::reduce(const Tensors& tensors) {
  const bool average = options_.op == Op::Average;
  const double factor = options_.gradient_predivide_factor;
  const AllreduceOptions options{.op = options_.op,
                                 .compression = options_.compression,
                                 .prescale_factor = average ? 1 / factor : 1,
                                 .postscale_factor = average ? factor : 1,
                                 .process_set = options_.process_set};
  std::vector<Handle<Tensors>> handles;
  Tensors fused;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    fused.push_back(tensor);
    bytes += std::int64_t(tensor.nbytes());
    if (bytes < kFusedBytes) continue;
    handles.push_back(grouped_allreduce_async_(std::exchange(fused, {}), options));
    bytes = 0;
  }
  if (!fused.empty()) handles.push_back(grouped_allreduce_async_(fused, options));
  for (const Handle<Tensors>& handle : handles) (void)horovod::synchronize(handle);
}

void DistributedOptimizer::synchronize() {
  if (is_adasum()) return;
  if (options_.process_set.included()) {
    Tensors gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (!gradient.defined()) gradient = at::zeros_like(parameters_[i]);
      if (gradient.layout() != at::kStrided)
        throw UsageError("DistributedOptimizer: the gradient of " + passes_->names[i] +
                         " is sparse; needs a dense one");
      gradients.push_back(gradient.detach());
    }
    reduce(gradients);
  }
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
  synchronized_ = true;
}

void DistributedOptimizer::step() {
  if (is_adasum()) return step_by_adasum();
  if (skip_ && !synchronized_)
    throw UsageError("DistributedOptimizer: step() under skip_synchronize() needs synchronize() before it");
  if (!skip_ && synchronized_)
    throw UsageError(
        "DistributedOptimizer: step() behind synchronize() would reduce gradients twice; call it under "
        "skip_synchronize()");
  if (!skip_) synchronize();
  synchronized_ = false;
  optimizer_.step();
}

void DistributedOptimizer::step_by_adasum() {
  if (!options_.process_set.included()) {
    optimizer_.step();
  } else {
    const at::NoGradGuard no_grad;
    Tensors before, changes;
    for (const at::Tensor& parameter : parameters_) before.push_back(parameter.detach().clone());
    optimizer_.step();
    for (std::size_t i = 0; i < parameters_.size(); ++i) changes.push_back(parameters_[i].detach() - before[i]);
    reduce(changes);
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].copy_(before[i] + changes[i]);
  }
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (passes_->any())
    throw UsageError(
        "DistributedOptimizer: zero_grad() between backward() and step() or synchronize() would lose gradients");
  synchronized_ = false;
  optimizer_.zero_grad(set_to_none);
}

DistributedOptimizer::SkipSynchronize DistributedOptimizer::skip_synchronize() {
  if (is_adasum()) throw UsageError("DistributedOptimizer: with Adasum there is nothing that step() could skip");
  return SkipSynchronize(*this);
}

void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  check_passes(passes);
  passes_->allowed = passes;
  std::fill(passes_->done.begin(), passes_->done.end(), 0);
}

}  // namespace lockstep::horovod
