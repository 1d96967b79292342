#pragma once

// Turns the fault of a stray in-place edit of a shared parameter into words. The weights are
// mapped read-only; whoever writes to one gets a segmentation fault, and this handler says
// first which parameter it was and what to do instead. Other faults, and signals that a process
// sends, go on to whatever handled them before.

#include <cstddef>
#include <string>

#include "lockstep/state/layout.h"

namespace lockstep::state {

struct Watched;

class [[nodiscard]] WriteGuard {
 public:
  /// Watches the parameters of every state buffer behind `region` (the read-only mapping), frozen ones too. The
  /// first guard of the process installs the signal handler. Any number of guards at a time; the
  /// layout must outlive the guard. Any thread.
  WriteGuard(const std::byte* region, const Layout& layout);
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  Watched* watched_;
};

}  // namespace lockstep::state
