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

}  // namespace

HookedExchange::HookedExchange(Buckets buckets, std::shared_ptr<comm::Group> group, CommHook hook)
    : buckets_(std::move(buckets)),
      group_(std::move(group)),
      hook_(std::move(hook)),
      memory_(memory_for(buckets_, *group_)) {}

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

bool HookedExchange::finish() {
  if (pending_.empty()) return false;
  const torch::NoGradGuard no_grad;
  comm::or_abort(*group_, [&] {
    for (auto& pending : pending_) take(pending->bucket, pending->future.value());
  });
  pending_.clear();
  return true;
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
