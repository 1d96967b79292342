#include "lockstep/parallel/gradient_buckets.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
std::vector<std::vector<std::size_t>> plan_buckets(const std::vector<std::size_t>& bytes, std::size_t capacity) {
  std::vector<std::vector<std::size_t>> buckets;
  std::size_t filled = capacity;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    if (filled >= capacity) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += bytes[i];
  }
  return buckets;
}

GradientBuckets::GradientBuckets(const NamedTensors& parameters, std::shared_ptr<comm::Group> group, bool find_unused,
                                 std::size_t capacity)
    : parameters_(parameters),
      group_(std::move(group)),
      find_unused_(find_unused),
      bucket_of_(parameters.size()),
      ready_(parameters.size()),
      used_(parameters.size()),
      hooks_(tensors_of(parameters), [this](std::size_t i) { on_gradient(i); }) {
  std::vector<std::size_t> bytes;
  for (const auto& [name, tensor] : parameters_) bytes.push_back(tensor.nbytes());
  for (auto& indices : plan_buckets(bytes, capacity)) {
    std::size_t filled = 0;
    for (std::size_t i : indices) {
      bucket_of_[i] = buckets_.size();
      filled += bytes[i];
    }
    largest_ = std::max(largest_, filled);
    buckets_.push_back({std::move(indices)});
  }
}

void GradientBuckets::begin_backward() {
  in_backward_ = true;
  next_ = 0;
  ready_.assign(parameters_.size(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_backward(); });
}

void GradientBuckets::on_gradient(std::size_t parameter) {
  const bool has_one = parameters_[parameter].second.grad().defined();  // a function's backward may give none
  used_[parameter] = used_[parameter] || has_one;
  if (!enabled_) return;
  if (!in_backward_) begin_backward();
  if (ready_[parameter] || !has_one) return;  // a second use in the same backward has added to .grad() already
  set_ready(parameter);
  send_ready();
}

void GradientBuckets::set_ready(std::size_t parameter) {
  ready_[parameter] = true;
  --buckets_[bucket_of_[parameter]].missing;
}

void GradientBuckets::send_ready() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(buckets_[next_]);
}

void GradientBuckets::send(const Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  const auto gradient = [&](std::size_t i) { return parameters_[i].second.grad(); };
  const at::ScalarType dtype = gradient(bucket.parameters.front()).scalar_type();
  // Gradients of one bucket may differ in dtype; they are rare enough to travel one by one.
  const bool uniform = std::all_of(bucket.parameters.begin(), bucket.parameters.end(),
                                   [&](std::size_t i) { return gradient(i).scalar_type() == dtype; });
  if (!uniform) {
    for (std::size_t i : bucket.parameters) group_->all_reduce(gradient(i), comm::ReduceOp::mean);
    return;
  }
  std::int64_t elements = 0;
  for (std::size_t i : bucket.parameters) elements += gradient(i).numel();
  if (!together_.defined()) together_ = group_->shared_empty({std::int64_t(largest_)}, at::kByte);
  const at::Tensor together = together_.narrow(0, 0, elements * std::int64_t(c10::elementSize(dtype))).view(dtype);
  const auto each = [&](auto&& body) {
    std::int64_t offset = 0;
    for (std::size_t i : bucket.parameters) {
      const at::Tensor grad = gradient(i);
      body(grad, together.narrow(0, offset, grad.numel()).view(grad.sizes()));
      offset += grad.numel();
    }
  };
  each([](const at::Tensor& grad, const at::Tensor& place) { place.copy_(grad); });
  group_->all_reduce(together, comm::ReduceOp::mean);
  each([](const at::Tensor& grad, const at::Tensor& place) { grad.copy_(place); });
}

void GradientBuckets::finish_backward() {
  in_backward_ = false;
  if (find_unused_) return add_unused();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!ready_[i]) refuse_unused(i);
}

// All ranks are told which parameters any of them used, for nobody may keep zeros for a gradient that nobody has.
void GradientBuckets::add_unused() {
  const torch::NoGradGuard no_grad;
  const at::Tensor used = at::zeros({std::int64_t(parameters_.size())}, at::kFloat);
  float* const is_used = used.mutable_data_ptr<float>();
  std::vector<std::size_t> filled;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    is_used[i] = used_[i] ? 1.0f : 0.0f;
    if (ready_[i]) continue;
    const at::Tensor& parameter = parameters_[i].second;
    if (!parameter.grad().defined()) {
      parameter.mutable_grad() = at::zeros_like(parameter);
      filled.push_back(i);
    }
    set_ready(i);
  }
  send_ready();
  group_->all_reduce(used, comm::ReduceOp::sum);
  for (std::size_t i : filled)
    if (is_used[i] == 0) parameters_[i].second.mutable_grad().reset();
  used_.assign(used_.size(), false);
}

void GradientBuckets::refuse_unused(std::size_t parameter) {
  const std::string cause = "backward: parameter '" + parameters_[parameter].first +
                            "' got no gradient, so the ranks cannot average it; every parameter must take part in the "
                            "loss (freeze those that do not before the model is wrapped, or set "
                            "find_unused_parameters)";
  group_->abort(cause);
  throw Error(cause);
}

}  // namespace lockstep::parallel
