#pragma once

// The heart of a step alone: barrier, reduce and update of this rank's slice, vote, commit. The
// same calls the engine makes, over the same SharedState, with the kernel's stores chosen by hand.

#include <memory>

#include "benchmarks/step/contender.h"
#include "benchmarks/step/optimizer_kind.h"
#include "benchmarks/support/pages.h"
#include "benchmarks/support/shapes.h"
#include "lockstep/comm/group.h"
#include "lockstep/optim/update.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::bench {

/// What the gradients in the slots are.
enum class SlotType { fp32, bf16 };

/// A region of shared state with the layout of the shapes. Collective.
std::shared_ptr<state::SharedState> make_state(const std::shared_ptr<comm::Group>& group, const Shapes& shapes,
                                               OptimizerKind kind, int state_buffers, Pages pages,
                                               SlotType slots = SlotType::fp32);

struct UpdateVariant {
  optim::Stores stores = optim::Stores::plain;
  Pages pages = Pages::small;
  bool write_copies = false;  ///< with bf16 slots: bfloat16 copies of the weights, as the engine does
};

/// Contenders may share a state: each steps on from where the others left it. With a state of one
/// buffer the update is in place.
std::unique_ptr<Contender> make_update_step(const std::shared_ptr<comm::Group>& group,
                                            const std::shared_ptr<state::SharedState>& state, OptimizerKind kind,
                                            UpdateVariant variant);

}  // namespace lockstep::bench
