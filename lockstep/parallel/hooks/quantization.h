#pragma once

// Gradients exchanged in 8 bits, as torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks has them: each rank
// cuts the range of its gradients into 255 steps, sends the number of the step, and adds up what all have sent.
//
//   ddp.register_comm_hook(world.group(), lockstep::quantization_pertensor_hook);
//
// What is rounded off is lost: there is no error feedback, in PyTorch either. Gradients that are not finite have no
// range: Error. All ranks get the bits of all others, so it pays with few ranks only.

#include <cstdint>

#include "lockstep/comm/group.h"
#include "lockstep/parallel/hooks/grad_bucket.h"

namespace lockstep::parallel {

/// The mean over the ranks of gradients in 255 steps from the smallest to the largest of the bucket, 0 among them.
GradFuture quantization_pertensor_hook(comm::Group& group, GradBucket& bucket);

/// The same with steps of their own for each `bucket_size` elements of the bucket; 512 in the hook, as in PyTorch.
/// UsageError unless `bucket_size` is more than 0.
GradFuture quantization_perchannel(comm::Group& group, GradBucket& bucket, std::int64_t bucket_size);
GradFuture quantization_perchannel_hook(comm::Group& group, GradBucket& bucket);

}  // namespace lockstep::parallel

namespace lockstep {
using parallel::quantization_perchannel;
using parallel::quantization_perchannel_hook;
using parallel::quantization_pertensor_hook;
}  // namespace lockstep
