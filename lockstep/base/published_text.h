#pragma once

// A text that stands in the segment beside the state, so that it outlives whoever wrote it: what the agent has to know
// about a state that it shall save (checkpoint/store/state_plan.h). Readers see the old text or the new one, whole,
// whenever the writer dies.

#include <string>
#include <string_view>

#include "lockstep/base/segment.h"

namespace lockstep::base {

/// Replaces the text; an empty one takes it away. One process at a time: local rank 0. UsageError when it is longer
/// than 1 GiB or memory is short.
void publish(Segment& segment, std::string_view text);

/// The text that was published last, by whatever generation; empty: none. Any process, at any time.
std::string published(const Segment& segment);

}  // namespace lockstep::base
