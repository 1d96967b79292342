#pragma once

// What a state begins with, told before an optimizer attaches.

#include "lockstep/parallel/kept_bytes.h"
#include "lockstep/state/shared_state.h"

namespace lockstep::parallel {

struct Beginning {
  KeptBytes kept;
  bool hold = false;                      ///< see EngineState::make_holdable()
  state::SharedState::Fill restore = {};  ///< see EngineState::start_from(); none: the module and the kept bytes
};

}  // namespace lockstep::parallel
