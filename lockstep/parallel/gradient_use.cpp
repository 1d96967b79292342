#include "lockstep/parallel/gradient_use.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace lockstep::parallel {

GradientUse::GradientUse(const NamedTensors& parameters, const DataParallelOptions& options)
    : parameters_(tensors_of(parameters)),
      static_graph_(options.static_graph),
      may_be_unused_(options.static_graph || options.find_unused_parameters),
      used_(parameters.size()),
      used_by_any_(parameters.size(), true),
      filled_(parameters.size()),
      gradients_(parameters.size()) {}

void GradientUse::begin() {
  filled_.assign(filled_.size(), false);
  gradients_.assign(gradients_.size(), 0);
}

bool GradientUse::count(std::size_t parameter) {
  ++gradients_[parameter];
  return !static_graph_ || (!graph_.empty() && gradients_[parameter] == graph_[parameter]);
}

void GradientUse::fill(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = parameters_[parameter];
  if (tensor.grad().defined()) return;
  tensor.mutable_grad() = at::zeros_like(tensor);
  filled_[parameter] = true;
}

void GradientUse::agree(comm::Group& group) {
  const at::Tensor used = at::zeros({std::int64_t(used_.size())}, at::kFloat);
  float* const is_used = used.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < used_.size(); ++i) is_used[i] = used_[i] ? 1.0f : 0.0f;
  group.all_reduce(used, comm::ReduceOp::sum);
  for (std::size_t i = 0; i < used_.size(); ++i) used_by_any_[i] = is_used[i] != 0;
}

std::optional<GradientUse::Difference> GradientUse::check_graph() {
  if (!static_graph_) return {};
  if (graph_.empty()) graph_ = gradients_;
  for (std::size_t i = 0; i < graph_.size(); ++i)
    if (gradients_[i] != graph_[i])
      return Difference{i, "got " + std::to_string(gradients_[i]) + " gradients in this backward and " +
                               std::to_string(graph_[i]) +
                               " in the first one; leave out static_graph where the graph changes"};
  return {};
}

void GradientUse::end() {
  for (std::size_t i = 0; i < filled_.size(); ++i)
    if (filled_[i] && !used_by_any_[i]) parameters_[i].mutable_grad().reset();
  used_.assign(used_.size(), false);
}

}  // namespace lockstep::parallel
