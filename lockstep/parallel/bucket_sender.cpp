#include "lockstep/parallel/bucket_sender.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/call_log.h"
#include "lockstep/parallel/bucket_plan.h"
#include "lockstep/parallel/device_exchange.h"
#include "lockstep/parallel/hooked_exchange.h"
#include "lockstep/parallel/hooks/default_hooks.h"

namespace lockstep::parallel {

BucketSender::BucketSender(const NamedTensors& parameters, std::shared_ptr<comm::Group> group,
                           const DataParallelOptions& options, StepClock& clock)
    : parameters_(parameters),
      group_(std::move(group)),
      clock_(clock),
      as_views_(options.gradient_as_bucket_view),
      reduce_dtype_(options.mixed_precision.reduce_dtype),
      bucket_of_(parameters.size()),
      ready_(parameters.size()) {
  std::vector<std::size_t> bytes;
  std::vector<at::ScalarType> dtypes;
  for (const auto& [name, tensor] : parameters) {
    bytes.push_back(tensor.nbytes());
    dtypes.push_back(tensor.scalar_type());
  }
  for (auto& indices : cut_by_dtype(plan_buckets(bytes, bucket_capacities(options.buckets)), dtypes)) {
    tensors_.emplace_back();
    for (std::size_t i : indices) {
      bucket_of_[i] = buckets_.size();
      tensors_.back().push_back(parameters[i].second);
    }
    buckets_.push_back({std::move(indices)});
  }
}

void BucketSender::set_hook(CommHook hook) {
  exchange_ = std::make_unique<HookedExchange>(tensors_, group_, std::move(hook));
}

// Not before there is a backward: an optimizer of ours has no use for its memory.
BucketExchange& BucketSender::exchange() {
  if (exchange_ != nullptr) return *exchange_;
  if (reduce_dtype_)
    set_hook([group = group_, half = *reduce_dtype_ == at::kHalf](GradBucket& bucket) {
      return half ? fp16_compress_hook(*group, bucket) : bf16_compress_hook(*group, bucket);
    });
  else if (group_->size() == 1 && !as_views_)
    exchange_ = std::make_unique<NoExchange>();
  else if (!parameters_.front().second.device().is_cpu())
    exchange_ = std::make_unique<DeviceExchange>(tensors_, group_, as_views_);
  else if (as_views_)
    exchange_ = std::make_unique<ViewExchange>(tensors_, group_);
  else
    exchange_ = std::make_unique<MeanExchange>(tensors_, group_);
  return *exchange_;
}

void BucketSender::begin() {
  next_ = 0;
  ready_.assign(ready_.size(), false);
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.parameters.size();
    bucket.skipped = false;
  }
}

void BucketSender::set_ready(std::size_t parameter) {
  ready_[parameter] = true;
  --buckets_[bucket_of_[parameter]].missing;
}

void BucketSender::skip_unless(const std::vector<bool>& used) {
  for (Bucket& bucket : buckets_)
    bucket.skipped =
        std::none_of(bucket.parameters.begin(), bucket.parameters.end(), [&](std::size_t i) { return used[i]; });
}

// The module knows of none: a function's own backward may make one all the same.
void BucketSender::check_dense(const Bucket& bucket) const {
  for (const std::size_t i : bucket.parameters) {
    if (parameters_[i].second.grad().layout() == at::kStrided) continue;
    const std::string cause = "backward: parameter '" + parameters_[i].first +
                              "' got a sparse gradient, and dense ones are averaged; compute it without sparse=true";
    group_->abort(cause);
    throw Error(cause);
  }
}

void BucketSender::send(double correction) {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    if (buckets_[next_].skipped) continue;
    const auto begin = std::chrono::steady_clock::now();
    check_dense(buckets_[next_]);
    const comm::CallLabel label(group_->call_log(), "bucket", std::int64_t(next_));
    exchange().send(next_, correction);
    clock_.exchanged(next_, begin);
  }
}

void BucketSender::finish() {
  const auto begin = std::chrono::steady_clock::now();
  if (exchange_ != nullptr && exchange_->finish()) clock_.exchanged(buckets_.size() - 1, begin);
}

void BucketSender::forget() {
  if (exchange_ != nullptr) exchange_->forget();
}

std::vector<std::size_t> BucketSender::bytes() const {
  std::vector<std::size_t> all;
  for (const auto& bucket : tensors_) {
    all.push_back(0);
    for (const at::Tensor& parameter : bucket) all.back() += parameter.nbytes();
  }
  return all;
}

}  // namespace lockstep::parallel
