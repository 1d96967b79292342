#pragma once

// Turns the fault of a stray in-place edit of a shared parameter into words. The weights are
// mapped read-only; whoever writes to one gets a segmentation fault, and this handler says
// first which parameter it was and what to do instead. Other faults pass by untouched.

#include <cstddef>
#include <string>

#include "lockstep/state/layout.h"

namespace lockstep::state {

class WriteGuard {
 public:
  /// Watches the weights of every state buffer behind `region` (the read-only mapping). The
  /// first guard of the process installs the signal handler. At most 16 guards at a time; the
  /// layout must outlive the guard.
  WriteGuard(const std::byte* region, const Layout& layout);
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  int slot_;
};

}  // namespace lockstep::state
