#include "lockstep/parallel/hooks/default_hooks.h"

namespace lockstep::parallel {
namespace {

GradFuture compressed_mean(comm::Group& group, GradBucket& bucket, at::ScalarType dtype) {
  const at::Tensor small = bucket.buffer().to(dtype).div_(group.size());
  group.all_reduce(small);
  bucket.buffer().copy_(small);
  return bucket.buffer();
}

}  // namespace

GradFuture allreduce_hook(comm::Group& group, GradBucket& bucket) {
  group.all_reduce(bucket.buffer(), comm::ReduceOp::mean);
  return bucket.buffer();
}

GradFuture noop_hook(comm::Group&, GradBucket& bucket) { return bucket.buffer(); }

GradFuture fp16_compress_hook(comm::Group& group, GradBucket& bucket) {
  return compressed_mean(group, bucket, at::kHalf);
}

GradFuture bf16_compress_hook(comm::Group& group, GradBucket& bucket) {
  return compressed_mean(group, bucket, at::kBFloat16);
}

}  // namespace lockstep::parallel
