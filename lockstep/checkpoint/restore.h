#pragma once

// Fills a new shared state from a checkpoint.

#include <cstdint>
#include <string>

#include "lockstep/parallel/engine.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {

/// Fills buffer 0 of `fresh`, made for `engine`, with the checkpoint in folder `path`, and returns its step: a
/// state::SharedState::Fill. UsageError listing every difference when it is of another model, optimizer, seed or set of
/// kept bytes, or has an average and the engine has none, or the other way round. World size, groups of
/// parameters, memory formats and mixed precision may differ, and the number of shards, which one line on stderr tells.
std::uint64_t restore(const std::string& path, const parallel::Engine& engine, state::SharedState& fresh);

}  // namespace lockstep::checkpoint
