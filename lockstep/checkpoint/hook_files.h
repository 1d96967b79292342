#pragma once

// What a communication hook remembers: each rank has its own, so each has a file in the checkpoint.

#include <string>
#include <vector>

#include "lockstep/checkpoint/store/write.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::checkpoint {

/// "hook-rank-3.safetensors".
std::string hook_name(int rank);

/// What the registered hook of each rank remembers, by rank, on rank 0; nothing elsewhere, and where there is none that
/// remembers anything. Collective where there is. UsageError on each rank whose tensors no file can hold.
std::vector<parallel::HookMemory::Tensors> gathered_memories(parallel::Engine& engine);

/// Has the registered hook go on from what the checkpoint in folder `path` says of this rank. Of another number of
/// ranks, or of none, it says nothing that could be gone on from: the hook begins anew, which rank 0 tells in one line;
/// so it does when there is no hook here to take what is saved. UsageError when it is of another hook.
void resume_memory(parallel::Engine& engine, const std::string& path);

}  // namespace lockstep::checkpoint
