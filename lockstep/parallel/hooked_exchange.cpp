#include "lockstep/parallel/hooked_exchange.h"

#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/or_abort.h"

namespace lockstep::parallel {
namespace {

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return elements;
}

constexpr std::int64_t kAlignment = 64;  // bytes

std::int64_t aligned_bytes(const std::vector<at::Tensor>& bucket) {
  const std::int64_t bytes = elements_of(bucket) * std::int64_t(bucket.front().element_size());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

HookedExchange::HookedExchange(Buckets buckets, std::shared_ptr<comm::Group> group, CommHook hook)
    : buckets_(std::move(buckets)), group_(std::move(group)), hook_(std::move(hook)) {
  std::int64_t bytes = 0;
  for (const auto& bucket : buckets_) bytes += aligned_bytes(bucket);
  const at::Tensor all = group_->shared_empty({bytes}, at::kByte);
  std::int64_t offset = 0;
  for (const auto& bucket : buckets_) {
    const std::int64_t used = elements_of(bucket) * std::int64_t(bucket.front().element_size());
    memory_.push_back(all.narrow(0, offset, used).view(bucket.front().scalar_type()));
    offset += aligned_bytes(bucket);
  }
}

void HookedExchange::send(std::size_t bucket, double) {
  const torch::NoGradGuard no_grad;
  comm::or_abort(*group_, [&] {
    // A tensor of its own each time: a hook may resize what it is given, or keep it.
    const at::Tensor flat = memory_[bucket].view({-1});
    GradBucket given(bucket, flat, buckets_[bucket], bucket + 1 == buckets_.size());
    const std::vector<at::Tensor> views = given.gradients();
    for (std::size_t i = 0; i < views.size(); ++i) views[i].copy_(buckets_[bucket][i].grad());
    auto pending = std::make_unique<Pending>(Pending{std::move(given), at::Tensor()});
    pending->future = hook_(pending->bucket);
    if (pending->future.ready())
      take(pending->bucket, pending->future.value());
    else
      pending_.push_back(std::move(pending));
  });
}

void HookedExchange::finish() {
  const torch::NoGradGuard no_grad;
  comm::or_abort(*group_, [&] {
    for (auto& pending : pending_) take(pending->bucket, pending->future.value());
  });
  pending_.clear();
}

void HookedExchange::take(const GradBucket& bucket, const at::Tensor& reduced) {
  const std::int64_t wanted = elements_of(bucket.parameters());
  if (!reduced.defined() || reduced.numel() != wanted)
    throw UsageError("communication hook: it made " +
                     (reduced.defined() ? std::to_string(reduced.numel()) + " elements" : std::string("no tensor")) +
                     " of bucket " + std::to_string(bucket.index()) + ", which has " + std::to_string(wanted));
  const at::Tensor flat = reduced.reshape({-1});
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : bucket.parameters()) {
    parameter.mutable_grad().copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace lockstep::parallel
