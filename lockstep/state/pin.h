#pragma once

// Holds a committed state, so that it can be read while training goes on: for a checkpoint writer, in whatever process.
//
// Who writes a step chooses a buffer that is neither committed nor pinned (SharedState::choose_target). So both sides
// move first and look second. A pin is taken on the committed buffer, then the commit word is looked at again: if it
// has moved, the buffer may have been chosen before the pin could be seen, and the next one is tried. If it has not,
// whoever chooses the buffer later has seen the commit word move later, and finds the pin.

#include <cstddef>

#include "lockstep/base/control_page.h"
#include "lockstep/base/segment.h"

namespace lockstep::state {

/// Move only; ends with this object, or with its process, however that ends. A child that is forked while it lives
/// holds it too. Any number at a time; while all buffers but the committed one are pinned, steps wait.
class [[nodiscard]] Pin {
 public:
  /// Pins the committed state of `region`. UsageError when there is none yet, or when it has less than three buffers:
  /// of two, each step needs the one that is not committed.
  explicit Pin(const base::Segment& segment, int region = 0);

  /// What is pinned.
  base::Commit commit() const { return commit_; }
  /// The region, read-only; offsets from the layout.
  const std::byte* read(std::size_t offset) const { return region_.data() + offset; }

 private:
  base::Commit commit_;
  base::Mapping region_;
};

}  // namespace lockstep::state
