#pragma once

// The state of torch's generator, from which forward draws (dropout) where an optimizer of torch::optim trains: each
// rank has its own. With one of ours nothing of it outlives a step, for each shard is seeded anew.

#include <string>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/group.h"

namespace lockstep::checkpoint {

inline constexpr const char* kRandomName = "random.safetensors";

/// That of each rank, as "rank-3", on rank 0; nothing elsewhere. Collective.
TensorMap gathered_random_states(comm::Group& group);

/// Has this rank's generator go on from what the checkpoint in folder `path` says of this rank. Of another number of
/// ranks, or of none, it says nothing that could be gone on from: the generator stays as the program has seeded it,
/// which rank 0 tells in one line. UsageError naming the file when it holds no state of such a generator.
void resume_random_state(const comm::Group& group, const std::string& path);

}  // namespace lockstep::checkpoint
