#pragma once

// The simplest communication hooks (hooks/grad_bucket.h), as torch.distributed.algorithms.ddp_comm_hooks has them.
//
//   ddp.register_comm_hook(world.group(), lockstep::fp16_compress_hook);
//   ddp.register_comm_hook(state, lockstep::fp16_compress_wrapper(lockstep::powerSGD_hook));
//
// float16 overflows beyond 65504 and loses what is below 6e-8; bfloat16 has the range of float32 and 8 bits.

#include <c10/core/ScalarType.h>

#include <utility>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

/// The mean over the ranks: what happens without a hook.
GradFuture allreduce_hook(comm::Group& group, GradBucket& bucket);

/// Each rank keeps its own gradients: to see what the exchange costs.
GradFuture noop_hook(comm::Group& group, GradBucket& bucket);

/// The mean, exchanged in float16 or bfloat16: rounded on each rank, divided by the ranks and rounded again, summed in
/// float32 and rounded once.
GradFuture fp16_compress_hook(comm::Group& group, GradBucket& bucket);
GradFuture bf16_compress_hook(comm::Group& group, GradBucket& bucket);

namespace detail {
template <class Hook>
auto compress_wrapper(Hook hook, at::ScalarType dtype) {
  return [hook = std::move(hook), dtype](auto& state, GradBucket& bucket) -> GradFuture {
    bucket.set_buffer(bucket.buffer().to(dtype));
    return GradFuture(hook(state, bucket)).then([dtype](at::Tensor reduced) { return reduced.to(dtype); });
  };
}
}  // namespace detail

/// A hook that sees its bucket in float16 or bfloat16, and whose gradients come back as they were.
template <class Hook>
auto fp16_compress_wrapper(Hook hook) {
  return detail::compress_wrapper(std::move(hook), at::kHalf);
}
template <class Hook>
auto bf16_compress_wrapper(Hook hook) {
  return detail::compress_wrapper(std::move(hook), at::kBFloat16);
}

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::allreduce_hook;
using parallel::bf16_compress_hook;
using parallel::bf16_compress_wrapper;
using parallel::fp16_compress_hook;
using parallel::fp16_compress_wrapper;
using parallel::noop_hook;
}  // namespace lockstep
