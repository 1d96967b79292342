#include "lockstep/parallel/hooks/quantization.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/round.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

constexpr double kLargest = 255;  // of 8 bits

// Of each row: its step and the number of the step that is 0, one below the other.
at::Tensor steps_of(const at::Tensor& rows) {
  const at::Tensor low = rows.amin(1).clamp_max(0), high = rows.amax(1).clamp_min(0);
  const at::Tensor step = ((high - low) / kLargest).clamp_min(std::numeric_limits<float>::epsilon());
  return at::stack({step, (-at::round(low / step)).clamp(0, kLargest)});
}

at::Tensor column(const at::Tensor& steps, int which) { return steps[which].unsqueeze(1); }

// `rows`: float32, of two dimensions.
at::Tensor mean_in_8_bits(comm::Group& group, const at::Tensor& rows, const GradBucket& bucket) {
  const at::Tensor own = steps_of(rows);
  if (!own.isfinite().all().item<bool>())
    throw Error("quantization: the gradients of bucket " + std::to_string(bucket.index()) +
                " are not finite, and have no range to be cut into steps");
  const at::Tensor small = (at::round(rows / column(own, 0)) + column(own, 1)).clamp(0, kLargest).to(at::kByte);
  const std::vector<at::Tensor> all_steps = group.all_gather(own), all_small = group.all_gather(small);
  at::Tensor sum = at::zeros_like(rows);
  for (std::size_t rank = 0; rank < all_small.size(); ++rank)  // in one order: the same bits everywhere
    sum += column(all_steps[rank], 0) * (all_small[rank].to(at::kFloat) - column(all_steps[rank], 1));
  return sum.div_(group.size());
}

}  // namespace

GradFuture quantization_pertensor_hook(comm::Group& group, GradBucket& bucket) {
  const at::Tensor flat = bucket.buffer().to(at::kFloat);
  if (flat.numel() == 0) return flat;
  return mean_in_8_bits(group, flat.unsqueeze(0), bucket).view({-1});
}

GradFuture quantization_perchannel(comm::Group& group, GradBucket& bucket, std::int64_t bucket_size) {
  if (bucket_size <= 0)
    throw UsageError("quantization: bucket_size is " + std::to_string(bucket_size) + "; more than 0");
  const at::Tensor flat = bucket.buffer().to(at::kFloat);
  if (flat.numel() == 0) return flat;
  const std::int64_t more = (bucket_size - flat.numel() % bucket_size) % bucket_size;
  const at::Tensor rows = at::constant_pad_nd(flat, {0, more}).view({-1, bucket_size});
  return mean_in_8_bits(group, rows, bucket).view({-1}).narrow(0, 0, flat.numel());
}

GradFuture quantization_perchannel_hook(comm::Group& group, GradBucket& bucket) {
  return quantization_perchannel(group, bucket, 512);
}

}  // namespace lockstep::parallel
