#pragma once

// What saving and resuming, in their several ways, have in common.

#include <cstdint>
#include <exception>
#include <string>

#include "lockstep/checkpoint/save.h"
#include "lockstep/checkpoint/store/write.h"
#include "lockstep/comm/group.h"

namespace torch::nn {
class Module;  // its header takes ten seconds to compile
}

namespace lockstep::checkpoint {

/// Whether a node holds the model's committed state of an earlier attempt, or, with zero1, nodes all shares of one.
/// The same on all ranks. Collective.
bool has_living_state(parallel::Engine& engine);

/// What find() says on rank 0, on all ranks; what it throws too. Collective.
Resumed found_by_all(comm::Group& group, const std::string& folder, const std::string& which);

/// The module's weights and buffers become those in rank 0's `file`, whose machine may be the only one that has it.
/// Collective. UsageError on all ranks where it cannot be read, or is of another model.
void load_on_all(comm::Group& group, torch::nn::Module& module, const std::string& file);

/// Tells in one line on stderr when shards or threads are others than those that made the checkpoint in folder `path`:
/// no error, for a job may go on so, and its bits are others.
void tell_other_bits(const std::string& path, const SavedState& saved, const parallel::Engine& engine);

/// The state that is to be saved. UsageError as of save().
const state::SharedState& checked_state(parallel::Engine& engine, const SaveOptions& options);

/// Before rank 0 saves: hold_folder(), less patient than they are; whose errors the other ranks hear of instead of
/// waiting.
void hold_or_abort(const std::string& folder, comm::Group& group);

/// Writes a checkpoint; what is refused is told on stderr.
Saved written(const std::string& folder, const Contents& contents, const Retention& retention);
/// What comes of one that was refused, when that was told.
Saved not_saved(std::uint64_t step, const std::exception& error);

}  // namespace lockstep::checkpoint
