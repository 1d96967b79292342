#pragma once

// Stops a process at one instruction: so many after its rank has entered a phase, or has changed a word of the control
// page. What a signal from outside hits by chance only, a phase of a hundred instructions, is hit each time.

#include <atomic>

#include "lockstep/base/control_page.h"

namespace lockstep::support {

struct Ambush {
  base::Phase phase = base::Phase::outside;
  unsigned instructions = 0;
  int signal = 0;  ///< what the process sends itself there; 0: no ambush
};

/// For the thread that calls it, whose rank these words are, once per process. The page of `words` is write-protected;
/// a store to it is let through by one single step, after which the phase is looked at. x86-64.
void lay(const Ambush& ambush, base::RankWords& words);

/// The same for a word that this thread is to change, whatever the phase; it must lie where the thread stores to.
void lay(const Ambush& ambush, const std::atomic<base::Mark>& word);

}  // namespace lockstep::support
