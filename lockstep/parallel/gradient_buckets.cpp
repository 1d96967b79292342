#include "lockstep/parallel/gradient_buckets.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/hooked_exchange.h"

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

std::vector<std::vector<std::size_t>> cut_by_dtype(const std::vector<std::vector<std::size_t>>& buckets,
                                                   const std::vector<at::ScalarType>& dtypes) {
  std::vector<std::vector<std::size_t>> cut;
  for (const auto& bucket : buckets) {
    std::vector<std::size_t> rest = bucket;
    while (!rest.empty()) {
      const auto others = std::stable_partition(
          rest.begin(), rest.end(), [&, dtype = dtypes[rest.front()]](std::size_t i) { return dtypes[i] == dtype; });
      cut.emplace_back(rest.begin(), others);
      rest.erase(rest.begin(), others);
    }
  }
  return cut;
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
  std::vector<at::ScalarType> dtypes;
  for (const auto& [name, tensor] : parameters_) {
    bytes.push_back(tensor.nbytes());
    dtypes.push_back(tensor.scalar_type());
  }
  for (auto& indices : cut_by_dtype(plan_buckets(bytes, capacity), dtypes)) {
    for (std::size_t i : indices) bucket_of_[i] = buckets_.size();
    buckets_.push_back({std::move(indices)});
  }
  for (const Bucket& bucket : buckets_) {
    tensors_.emplace_back();
    for (std::size_t i : bucket.parameters) tensors_.back().push_back(parameters_[i].second);
  }
  exchange_ = std::make_unique<MeanExchange>(tensors_, group_);
}

void GradientBuckets::set_hook(CommHook hook) {
  exchange_ = std::make_unique<HookedExchange>(tensors_, group_, std::move(hook));
}

void GradientBuckets::expect_all() {
  next_ = 0;
  ready_.assign(parameters_.size(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
}

void GradientBuckets::begin_backward() {
  in_backward_ = true;
  if (inputs_ != nullptr) inputs_->announce(UnevenInputs::Pass::backward);
  expect_all();
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
  const double correction = inputs_ != nullptr ? inputs_->correction() : 1;
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) exchange_->send(next_, correction);
}

void GradientBuckets::finish_backward() {
  in_backward_ = false;
  ++averaged_;
  if (find_unused_) return add_unused();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!ready_[i]) refuse_unused(i);
  exchange_->finish();
}

void GradientBuckets::backward_without_inputs() {
  ++averaged_;  // as the ranks that have inputs count
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> kept;
  for (const auto& [name, parameter] : parameters_)
    kept.push_back(std::exchange(parameter.mutable_grad(), at::zeros_like(parameter)));
  expect_all();
  for (std::size_t i = 0; i < parameters_.size(); ++i) set_ready(i);
  send_ready();
  exchange_->finish();
  if (find_unused_) group_->all_reduce(at::zeros({std::int64_t(parameters_.size())}, at::kFloat), comm::ReduceOp::sum);
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].second.mutable_grad() = kept[i];
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
  exchange_->finish();
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
