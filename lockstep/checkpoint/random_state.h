#pragma once

// The state of torch's generator, from which forward draws (dropout) where an optimizer of torch::optim trains: each
// rank has its own. With one of ours nothing of it outlives a step, for each shard is seeded anew.

#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/group.h"

namespace lockstep::checkpoint {

inline constexpr const char* kRandomName = "random.safetensors";

/// That of each rank, as "rank-3", on rank 0; nothing elsewhere. Where the module is on a device, that of the device's
/// generator too, as "rank-3-cuda". Collective.
TensorMap gathered_random_states(comm::Group& group, at::Device device);

/// Has this rank's generators go on from what the checkpoint in folder `path` says of this rank. Of another number of
/// ranks, of none, or of none on such a device, it says nothing that could be gone on from: the generator stays as the
/// program has seeded it, which rank 0 tells in one line. UsageError naming the file when it holds no state of such a
/// generator.
void resume_random_state(const comm::Group& group, const std::string& path, at::Device device);

}  // namespace lockstep::checkpoint
