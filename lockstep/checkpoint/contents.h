#pragma once

// What a checkpoint of a shared state holds.

#include <cstddef>

#include "lockstep/checkpoint/save.h"
#include "lockstep/checkpoint/store/state_plan.h"
#include "lockstep/checkpoint/store/write.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::checkpoint {

/// Where they lie, for an engine with an optimizer of ours; between steps. As long as the optimizer is attached.
/// Without the optimizer's state where nodes share that out, for it lies on no one of them. UsageError when a tensor
/// has a dtype that no file can hold.
StatePlan plan_of(parallel::Engine& engine, const SaveOptions& options);

/// The committed state of such an engine; between steps, on rank 0. Its tensors are memory at
/// `region`: the state region as this rank has it mapped, or another mapping of it that pins the committed buffer;
/// those of an optimizer whose state the nodes share out are memory of `arrays`, which parallel::gather_arrays() has
/// given. UsageError as above.
Contents contents_of(parallel::Engine& engine, const std::byte* region, const SaveOptions& options,
                     const state::WholeArrays& arrays);

/// UsageError on each rank that calls when options.place names bytes that are not kept.
void check_place(parallel::Engine& engine, const SaveOptions& options);

/// A tensor in CPU memory of its own. UsageError naming it when no file can hold its dtype.
TensorBytes bytes_of(const std::string& name, const at::Tensor& tensor);

/// The same for each of a map.
std::vector<TensorBytes> bytes_of(const std::map<std::string, at::Tensor>& tensors);

/// Which versions made a checkpoint.
std::map<std::string, std::string> versions();

}  // namespace lockstep::checkpoint
